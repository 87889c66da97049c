"""An agent without a language model for drawn scenes, and the rules that write their test prompts."""
