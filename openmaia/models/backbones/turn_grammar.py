"""The form of a turn as a grammar that constrains what a model generates."""

from functools import cache

from openmaia.core.messages import AnswerFormat, TurnKind

MAX_LABELS = 6
MAX_HYPOTHESES = 6
FORMS = {
    TurnKind.ANY: "hypotheses (experiment | answer)",
    TurnKind.EXPERIMENT: "hypotheses experiment",
    TurnKind.MEASUREMENT: "named measurement",
    TurnKind.ANSWER: "hypotheses answer",
}


@cache
def turn_grammar(answer: AnswerFormat, expected: TurnKind = TurnKind.ANY) -> str:
    """Returns the grammar of a turn: hypotheses, then one experiment or an answer.

    The notation is GBNF, which llama.cpp and the xgrammar library of vLLM and SGLang read. Everything but code has a
    limited length, because small models may otherwise never end a line. In a measurement the model writes at least two
    numbered hypotheses, and then only the prompts of two to eight images; the rest of the code is fixed.
    """
    chosen = " | ".join(f'"{choice}"' for choice in answer.choices) or "concept"
    effect = f'("[{answer.effect}]: " sentence "\\n")?' if answer.effect else ""
    number = "" if answer.choices else '(" " [1-9])?'
    return "\n".join([
        f"root ::= {FORMS[expected]}",
        rf'hypotheses ::= ("[HYPOTHESIS LIST]:\n" entry{{1,{MAX_HYPOTHESES}}} "\n")?',
        r'entry ::= [1-9] ". " word (" " anything){0,39} "\n"',
        # Required, because small models that state none copy the prompts of the example in their instructions.
        rf'named ::= "[HYPOTHESIS LIST]:\n" ([1-9] ". H" [1-9] ": " word (" " anything){{0,39}} "\n"){{2,{MAX_HYPOTHESES}}} "\n"',
        r'experiment ::= "[CODE]:\n```python\n" code+ "```\n"',
        r'code ::= ([^`\n] [^\n]*)? "\n"',
        r'measurement ::= "[CODE]:\n```python\nprompts = [" prompt (", " prompt){1,7} "]\n'
        r"activations, images = system.call_neuron(tools.text2image(prompts))\n"
        r'for prompt, activation in zip(prompts, activations):\n    print(prompt, activation)\n```\n"',
        r'prompt ::= "\"" plain (" " plain){0,29} "\""',
        r'plain ::= [^ "\\\n]{1,60}',
        rf'answer ::= "[{answer.text}]: " sentence (" " sentence)? (" " sentence)? "\n" label{{0,{MAX_LABELS}}} {effect}'.rstrip(),
        rf'label ::= "[{answer.labels}" {number} "]: " ({chosen}) "\n"',
        r'sentence ::= word (" " word){0,39} "."?',
        r'concept ::= words (". " words)? "."?',
        r'words ::= word (" " word){0,7}',
        # A full stop within a word: 0.5, Object.2.
        r'word ::= piece ("." piece){0,3}',
        r"piece ::= [^ .\n`[]{1,30}",
        r"anything ::= [^ \n`]{1,60}",
    ])  # fmt: skip
