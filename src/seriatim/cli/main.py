"""The `seriatim` command. Each command group has a file of its own beside this one, imported when it is used."""

from importlib import import_module

try:
    import click
except ModuleNotFoundError as missing:
    raise SystemExit("The seriatim command comes with the server: pip install 'seriatim[server]'") from missing

from seriatim import __version__

# In the order in which a new user meets them. The attribute of a module is named like its command.
ROLES = ("gateway", "ingest", "fanout", "api")
COMMANDS = (
    *("serve", *ROLES, "user", "keys", "config"),
    *("check", "trace", "counters", "data", "tables", "topics", "schemas", "cluster", "simulate"),
)


class LazyGroup(click.Group):
    """A server that starts need not wait for the imports of the simulator."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = "roles" if cmd_name in ROLES else cmd_name
        command = getattr(import_module(f"seriatim.cli.{module}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Start here:  seriatim serve",
)
@click.version_option(__version__, prog_name="seriatim")
def main() -> None:
    """Seriatim, a messaging backend you run yourself.

    Everyone in a chat sees every message, once, in the same order, whatever fails. Do not take our word for it:
    `seriatim simulate` runs the real code through thousands of failing worlds on this machine, and any world that
    breaks the promise can be replayed step by step.
    """


if __name__ == "__main__":
    main()
