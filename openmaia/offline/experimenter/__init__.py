"""The scripted experimenter: an agent without a language model that follows the same protocol as a language model.

It reads activations from the messages, and analyses images only with the module `eyes`. Its hypotheses are words of the
closed vocabulary. It narrows them down by a screening of images of all words in a factorial design, or by the words that
a bank names, by matched controls, which show another word in place of that of the hypothesis, and by edits of images.
Then it answers or abstains. Its reply is a function of the messages: a repeated request gets the same reply.
"""
