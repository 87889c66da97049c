"""The fixed vocabulary of the offline services, and rules that write prompts of its words.

The offline services replace large models in runs without a GPU, a model hub or an API key. Those that share the
vocabulary are the scripted agent, the collage generator and the evaluation by rules. Its words name colours, patterns,
shapes, objects and scenes. The modules are:

- `words`: the words with their kinds and synonyms
- `phrases`: prompts that show a word in several contexts
- `contrasts`: pairs of prompts that test a label, of which only the first shows it
- `contexts`: pairs of prompts that test whether a context, such as snow, changes a classifier's score of a class
"""
