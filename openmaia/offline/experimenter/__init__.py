"""The scripted experimenter: an agent without a language model that follows the same protocol as a language model.

It reads activations from the messages, and analyses images only with the module `eyes`. Its hypotheses are words of the
closed vocabulary. It narrows them down in three steps, and then answers or abstains. The steps are a screening, which
measures images of all words in a factorial design; matched controls, which show another word in place of that of the
hypothesis; and edits of images. Its reply is a function of the messages: a repeated request gets the same reply.
"""
