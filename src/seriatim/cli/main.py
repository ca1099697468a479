"""The `seriatim` command. Each command group has a file of its own beside this one."""

try:
    import click
except ModuleNotFoundError as missing:
    raise SystemExit("The seriatim command comes with the server: pip install 'seriatim[server]'") from missing

from seriatim import __version__
from seriatim.cli.simulate import simulate


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Start here:  seriatim simulate --seeds 1..200",
)
@click.version_option(__version__, prog_name="seriatim")
def main() -> None:
    """Seriatim, a messaging backend you run yourself.

    Everyone in a chat sees every message, once, in the same order, whatever fails. Do not take our word for it:
    `seriatim simulate` runs the real code through thousands of failing worlds on this machine, and any world that
    breaks the promise can be replayed step by step.
    """


main.add_command(simulate)
