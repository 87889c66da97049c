"""Writes the form of a turn as a grammar with which servers and engines constrain what a model generates."""

from functools import cache

from openmaia.core.messages import AnswerFormat, TurnKind

MAX_LABELS = 6
FORMS = {
    TurnKind.ANY: "(experiment | answer)",
    TurnKind.EXPERIMENT: "experiment",
    TurnKind.MEASUREMENT: "measurement",
    TurnKind.ANSWER: "answer",
}


@cache
def turn_grammar(answer: AnswerFormat, expected: TurnKind = TurnKind.ANY) -> str:
    """Returns the grammar of a turn: hypotheses, then one experiment or an answer.

    The notation is GBNF, which llama.cpp and the xgrammar library of vLLM and SGLang read.

    Args:
        answer: The format of answers.
        expected: Which of the two it has to be. A measurement leaves only the prompts to the model. The text of an answer has at
            most three full stops, a label one, and there are at most MAX_LABELS labels.
    """
    chosen = " | ".join(f'"{choice}"' for choice in answer.choices) or "concept"
    number = "" if answer.choices else '(" " [1-9])?'
    return "\n".join([
        f"root ::= hypotheses {FORMS[expected]}",
        r'hypotheses ::= ("[HYPOTHESIS LIST]:\n" entry+ "\n")?',
        r'entry ::= [1-9] ". " line "\n"',
        r'experiment ::= "[CODE]:\n```python\n" code+ "```\n"',
        r'code ::= ([^`\n] [^\n]*)? "\n"',
        r'measurement ::= "[CODE]:\n```python\nprompts = [" prompt (", " prompt)* "]\n'
        r"activations, images = system.call_neuron(tools.text2image(prompts))\n"
        r'for prompt, activation in zip(prompts, activations):\n    print(prompt, activation)\n```\n"',
        r'prompt ::= "\"" [^"\\\n]+ "\""',
        rf'answer ::= "[{answer.text}]: " sentences "\n" label{{0,{MAX_LABELS}}}',
        rf'label ::= "[{answer.labels}" {number} "]: " ({chosen}) "\n"',
        r"line ::= [^\n`[] [^\n]*",
        # Small models go on and on where nothing ends a line.
        r'sentences ::= [^.\n`[] part ("." part)? ("." part)? ("." part)?',
        r'concept ::= [^.\n`[] part ("." part)?',
        r'part ::= ([^.\n] | "." [0-9])*',
    ])  # fmt: skip
