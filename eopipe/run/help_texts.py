"""What `eopipe completion` prints for shells, and `eopipe help TOPIC`: the beginning of a page of the docs."""

import re
from collections.abc import Mapping

from eopipe.contract import STAGES, stage, summary

# The word before the cursor decides first: an option with choices completes to those, other values to files.
BASH = """\
# Tab completion of eopipe: eval "$(eopipe completion bash)"
_eopipe() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=""
  if (( COMP_CWORD == 1 )); then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{choices}
      *) if [[ $word == -* ]]; then case "${{COMP_WORDS[1]}}" in
{options}
      esac; fi ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _eopipe eopipe
"""
ZSH = """\
# Tab completion of eopipe: eval "$(eopipe completion zsh)"
autoload -Uz +X compinit bashcompinit && compinit && bashcompinit
"""
PAGES = "https://github.com/eopipe/eopipe/blob/main/docs"
# The page of each topic, or a section of it, in the order in which users come to them.
TOPICS = {
    "labels": "own-area.md",
    "points": "own-area.md#points",
    "models": "recipes.md",
    "areas": "areas.md",
    "mapping": "mapping.md",
    "months": "every-month.md",
    "trials": "trials.md",
    "members": "trials.md#members",
    "ensembles": "trials.md#members",
    "chips": "chip-sets.md",
    "python": "python.md",
    "slurm": "clusters.md",
    "cwl": "cwl.md",
}
# Commands whose first argument is a stage or a shell.
ARGUMENTS = {"command": STAGES, "help": STAGES, "completion": ("bash", "zsh", "fish")}


def text_of(topic: str) -> str:
    """The beginning of a page or section to the end of its first example, and where the rest is."""
    from eopipe.run.locate import shipped

    file, _, section = TOPICS[topic].partition("#")
    page = re.sub(r"<!--.*?-->\n", "", shipped(f"docs/{file}").read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.search(rf"^#+ ((?i:{section}).*?(?:^```\w+\n.*?^```|\Z))", page, re.DOTALL | re.MULTILINE)
    assert text is not None
    # Links and fences are for a browser.
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)|^```\w*\n?", lambda match: match[1] or "", text[1], flags=re.MULTILINE)
    return f"{plain.strip()}\n\nmore: {PAGES}/{TOPICS[topic]}"


def script(shell: str, others: Mapping[str, str]) -> str:
    """The completion for a shell; `others` are the commands that are not stages, each with its summary."""
    if shell == "fish":
        return _fish(others)
    options: list[str] = []
    choices = [f'      "{name} {name}") words="{" ".join(words)}" ;;' for name, words in ARGUMENTS.items()]
    for name in STAGES:
        ports = stage(name).ports
        flags = [*(port.flag for port in ports if not port.positional), "--help"]
        options.append(f'        {name}) words="{" ".join(flags)}" ;;')
        rows = ((port.flag, " ".join(map(str, port.choices))) for port in ports if port.choices)
        choices += [f'      "{name} {flag}") words="{values}" ;;' for flag, values in rows]
    commands = " ".join([*STAGES, *others, "help"])
    text = BASH.format(commands=commands, choices="\n".join(choices), options="\n".join(options))
    return ZSH + text.partition("\n")[2] if shell == "zsh" else text


def _fish(others: Mapping[str, str]) -> str:
    lines = ["# Tab completion of eopipe: eopipe completion fish | source"]
    for name, text in {**{name: summary(name) for name in STAGES}, **others}.items():
        lines.append(f"complete -c eopipe -n __fish_use_subcommand -a {name} -d {_quoted(text)}")
    for name in STAGES:
        for port in (port for port in stage(name).ports if not port.positional):
            values = f" -x -a {_quoted(' '.join(map(str, port.choices)))}" if port.choices else ""
            condition = _quoted(f"__fish_seen_subcommand_from {name}")
            lines.append(f"complete -c eopipe -n {condition} -l {port.flag[2:]}{values} -d {_quoted(port.mark.doc)}")
    for name, words in ARGUMENTS.items():
        condition = _quoted(f"__fish_seen_subcommand_from {name}")
        lines.append(f"complete -c eopipe -n {condition} -a {_quoted(' '.join(words))}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
