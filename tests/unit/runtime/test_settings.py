"""Settings: later sources override earlier ones, all mistakes are reported at once, and their page is current."""

from pathlib import Path
from typing import Any

import pytest

from seriatim.runtime.config.roles import ProcessRole
from seriatim.runtime.config.settings import HostPort, Settings, address, all_settings
from seriatim.runtime.config.sources import SettingsError, documentation, format_setting, format_value, load
from seriatim.runtime.config.validation import validate

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"


def _split(**given: Any) -> Settings:
    """On engines that several processes can share."""
    return Settings(store="dynamodb://", events="kafka://k:9092", directory="redis://r", **given)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _file(text: str) -> Path:
    path = Path("some.toml")
    path.write_text(text, encoding="utf-8")
    return path


def _problems(flags: dict[str, str | None], environ: dict[str, str], file: Path | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(flags, environ, file=file)
    return list(caught.value.problems)


def test_without_any_source_everything_has_its_default() -> None:
    loaded = load({}, {})
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() -> None:
    file = _file('port = 1\nhost = "file"\nlog_level = "error"')
    loaded = load({"port": "3", "env": None}, {"SERIATIM_PORT": "2", "SERIATIM_HOST": "environment"}, file=file)
    settings = loaded.settings
    assert (settings.port, settings.host, settings.log_level, settings.env) == (3, "environment", "error", "dev")
    assert loaded.sources["port"] == "flag --port"
    assert loaded.sources["host"] == "environment variable SERIATIM_HOST"
    assert loaded.sources["log_level"] == "file some.toml"
    assert loaded.sources["env"] == "default"


def test_a_file_in_the_current_folder_is_found_unless_another_is_named() -> None:
    Path("seriatim.toml").write_text("port = 7", encoding="utf-8")
    assert load({}, {}).settings.port == 7
    assert load({}, {"SERIATIM_CONFIG": str(_file("port = 8"))}).settings.port == 8
    assert load({}, {}, file=_file("port = 9")).settings.port == 9


def test_lists_are_toml_lists_in_a_file_and_separated_by_commas_elsewhere() -> None:
    file = _file('origins = ["https://a.example", "https://b.example:444"]')
    assert load({}, {}, file=file).settings.origins == ("https://a.example", "https://b.example:444")
    both = {"SERIATIM_TRUSTED_PROXIES": " 10.0.0.0/8, ::1/128 ,"}
    assert load({}, both).settings.trusted_proxies == ("10.0.0.0/8", "::1/128")


def test_every_mistake_of_every_source_is_reported_at_once_with_name_place_and_what_is_allowed() -> None:
    problems = _problems({"env": "production"}, {"SERIATIM_PORT": "eighty"}, _file('prot = 1\nlog_format = "xml"'))
    assert problems == [
        "prot (file some.toml): there is no such setting; did you mean port?",
        "log_format (file some.toml): 'xml' is not one of auto, pretty, json",
        "port (environment variable SERIATIM_PORT): 'eighty' is not a whole number from 0 to 65535",
        "env (flag --env): 'production' is not one of dev, test, prod",
    ]


@pytest.mark.parametrize("text", ["65536", "-1", "1.0", " 1", "1_0", "true", ""])
def test_a_port_is_a_plain_number_in_range(text: str) -> None:
    assert len(_problems({"port": text}, {})) == 1


@pytest.mark.parametrize("value", ['"8080"', "8080.0", "true", "[1]"])
def test_a_file_gives_numbers_as_numbers(value: str) -> None:
    assert len(_problems({}, {}, _file(f"port = {value}"))) == 1


def test_true_and_false_are_the_only_truths() -> None:
    assert load({"otp_log_in_prod": "TRUE"}, {}).settings.otp_log_in_prod is True
    assert len(_problems({"otp_log_in_prod": "yes"}, {})) == 1


def test_a_file_that_is_missing_or_no_toml_is_named() -> None:
    assert _problems({}, {}, Path("absent.toml")) == [
        "the settings file absent.toml cannot be read: No such file or directory"
    ]
    assert _problems({}, {}, _file("port ="))[0].startswith("the settings file some.toml cannot be read: Invalid")


def test_an_unknown_variable_is_a_warning_and_no_error_because_orchestrators_make_them() -> None:
    loaded = load({}, {"SERIATIM_SERVICE_HOST": "10.0.0.1", "SERIATIM_PROT": "1", "OTHER": "x"})
    assert loaded.warnings == [
        "SERIATIM_PROT: there is no such setting; did you mean SERIATIM_PORT?",
        "SERIATIM_SERVICE_HOST: there is no such setting; `seriatim config doc` lists them all",
    ]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (Settings(env="prod"), "otp_sender"),
        (Settings(store="dynamodb:eu-west-1"), "store"),
        (Settings(events="kafka:broker"), "events"),
        (Settings(directory="kafka://broker"), "directory"),
        (Settings(events="kafka://broker"), "store"),
        (Settings(directory="redis://r", store="dynamodb://"), "events"),
        (Settings(roles=(ProcessRole.GATEWAY,), ingest=("here:1",)), "roles"),
        (Settings(roles=(ProcessRole.INGEST,)), "roles"),
        (Settings(roles=(ProcessRole.FANOUT,), directory="redis://r"), "store"),
        (Settings(roles=(ProcessRole.GATEWAY, ProcessRole.FANOUT), ingest=("here:1",), store="dynamodb://"), "events"),
        (Settings(ingest=("here:1",)), "ingest"),
        (_split(roles=(ProcessRole.GATEWAY,)), "ingest"),
        (_split(roles=(ProcessRole.API,)), "ingest"),
        (_split(roles=(ProcessRole.API,), ingest=("here",)), "ingest"),
        (_split(roles=(ProcessRole.API,), ingest=("here:0",)), "ingest"),
        (_split(roles=(ProcessRole.API,), ingest=("dns:here:1", "there:1")), "ingest"),
        (_split(roles=(ProcessRole.INGEST,), rpc="0.0.0.0:1"), "rpc_token"),
        (_split(roles=(ProcessRole.INGEST,), rpc="10.0.0.1:1"), "rpc_token"),
        (_split(ingest=("here:1",), rpc="[::]:1"), "rpc_token"),
        (_split(rpc="8082"), "rpc"),
        (_split(rpc_tls_cert=__file__, rpc_tls_key=__file__), "rpc_tls_ca"),
        (Settings(internal="8081"), "internal"),
        (Settings(internal=":8081"), "internal"),
        (Settings(internal="localhost:99999"), "internal"),
        (Settings(internal="127.0.0.1:8080"), "internal"),
        (Settings(tls_cert=__file__), "tls_key"),
        (Settings(tls_key=__file__), "tls_cert"),
        (Settings(tls_cert=__file__, tls_key="absent.pem"), "tls_key"),
        (Settings(trusted_proxies=("proxy.example",)), "trusted_proxies"),
        (Settings(origins=("https://a.example/",)), "origins"),
        (Settings(origins=("*",)), "origins"),
        (Settings(cors_origins=("a.example",)), "cors_origins"),
        (Settings(data=""), "data"),
        (Settings(host=""), "host"),
        (Settings(instance="a b"), "instance"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(settings: Settings, name: str) -> None:
    assert [wrong.name for wrong in validate(settings)] == [name]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(env="test"),
        Settings(env="prod", otp_log_in_prod=True),
        Settings(internal="off"),
        Settings(internal="[::1]:0", port=0),
        Settings(tls_cert=__file__, tls_key=__file__),
        Settings(cors_origins=("*", "http://[::1]:3000")),
        Settings(trusted_proxies=("10.0.0.1",)),
        _split(),
        Settings(roles=(ProcessRole.GATEWAY,), directory="redis://r", ingest=("dns:ingest.local:8082",)),
        Settings(roles=(ProcessRole.INGEST,), store="dynamodb://", events="kafka://k:9092"),
        _split(roles=(ProcessRole.INGEST,), rpc="[::1]:0"),
        _split(roles=(ProcessRole.INGEST,), rpc="0.0.0.0:1", rpc_token="word"),
        _split(
            roles=(ProcessRole.INGEST,),
            rpc="0.0.0.0:1",
            rpc_tls_cert=__file__,
            rpc_tls_key=__file__,
            rpc_tls_ca=__file__,
        ),
        _split(roles=(ProcessRole.FANOUT,), env="prod"),
        _split(roles=(ProcessRole.GATEWAY, ProcessRole.INGEST)),
        _split(rpc="0.0.0.0:1"),  # no role listens there: all of them are in one process
    ],
)
def test_what_goes_together_is_accepted(settings: Settings) -> None:
    assert list(validate(settings)) == []


def test_the_error_for_a_refused_engine_names_the_engines_there_are_and_repeats_no_password() -> None:
    [problem] = _problems({"store": "redis://user:hunter2@host"}, {})
    assert "takes embedded: or dynamodb://" in problem
    assert "hunter2" not in problem


def test_roles_are_a_list_in_any_order_and_without_any_all_of_them_run() -> None:
    assert load({}, {}).settings.here == (ProcessRole.GATEWAY, ProcessRole.INGEST, ProcessRole.FANOUT, ProcessRole.API)
    ours = {"SERIATIM_STORE": "dynamodb://", "SERIATIM_EVENTS": "kafka://k:1", "SERIATIM_DIRECTORY": "redis://r"}
    loaded = load({"roles": "api, ingest"}, ours)
    assert loaded.settings.here == (ProcessRole.INGEST, ProcessRole.API)
    [problem] = _problems({"roles": "api,gate"}, ours)
    assert "a list of gateway, ingest, fanout, api" in problem


def test_an_ingest_process_listens_unless_it_is_all_there_is() -> None:
    assert _split().rpc_address is None
    assert _split(ingest=("here:1",)).rpc_address == HostPort("127.0.0.1", 8082)
    assert _split(roles=(ProcessRole.INGEST,)).rpc_address == HostPort("127.0.0.1", 8082)
    assert _split(roles=(ProcessRole.GATEWAY,)).rpc_address is None


def test_keys_are_in_the_data_folder_unless_said_otherwise() -> None:
    assert Settings(data="/d").keys_folder == Path("/d/keys")
    assert Settings(data="/d", keys="/k").keys_folder == Path("/k")


def test_an_address_is_host_and_port() -> None:
    assert address("localhost:80") == HostPort("localhost", 80)
    assert address("[::1]:80") == HostPort("::1", 80)
    assert str(address("[::1]:80")) == "[::1]:80"
    assert Settings(internal="off").internal_address is None


def test_passwords_in_urls_are_not_shown() -> None:
    assert format_value("redis://user:hunter2@host/0") == "redis://user:***@host/0"
    assert format_value(("a", True, 5)) == "a, true, 5"
    assert format_value("kafka://k:9?sasl.username=u&sasl.password=hunter2&x=y") == (
        "kafka://k:9?sasl.username=u&sasl.password=***&x=y"
    )


def test_a_shared_word_is_not_shown() -> None:
    [token] = [setting for setting in all_settings() if setting.name == "rpc_token"]
    assert format_setting(token, "hunter2") == "***"
    assert format_setting(token, "") == ""
    assert [setting.name for setting in all_settings() if setting.secret] == ["rpc_token"]


def test_every_setting_says_what_it_means_and_what_it_takes() -> None:
    for setting in all_settings():
        assert setting.description.endswith("."), setting.name
        assert setting.takes, setting.name
    assert [setting.name for setting in all_settings() if setting.unit] == [
        setting.name for setting in all_settings() if setting.name.endswith("_seconds")
    ]


def test_the_page_about_settings_is_what_config_doc_prints() -> None:
    assert DOCS.read_text(encoding="utf-8") == documentation(), "run `seriatim config doc > docs/settings.md`"
