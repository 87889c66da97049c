"""The fixed vocabulary of the offline services, and rules that write prompts of its words.

Its words name colours, patterns, shapes, objects and scenes.
"""
