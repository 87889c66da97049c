"""Texts that do harm where they are taken for more than text."""

TEXTS = {
    "script": "</script><script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">{{ 7*7 }}",
    "javascript link": "javascript:document.title='owned'//",
    "markup of the terminal": "[link=http://x.example]a[/link] [bold red]b[/] :skull:",
    "ANSI sequence": "\x1b[2J\x1b[31mred\x1b[8mhidden\x1b[0m\rerror: none",
    "OSC sequence": "\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\",
    "C1 controls": "\x9b31mred\x9d0;title\x9c\x85",
    "direction override": "cat\u202egnp.exe\u2066\u200f\u200b\ufeff",
    "null byte": "a\0b\x08\x7f",
    "lone surrogate": "a\ud800b\udfff",
    "formula": "=cmd|' /C calc'!A0",
    "formula with a sign": "@SUM(1+1)*-2",
    "LaTeX": "\\input{/etc/passwd}\\write18{id} $x_1^2$ & 100% #~",
    "shell": "$(touch owned) `touch owned`; touch owned",
    "path": "../../../../etc/passwd",
    "line separators": "a\u2028b\u2029c\x0bd\x1ce\n\nf",
}
"""One text for each kind of harm."""

MEGABYTE = "\x1b[31mA=" * 150_000
"""The length alone does harm."""
