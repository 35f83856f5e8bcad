"""What holds for the chart as a whole: which values it takes and refuses, and what an upgrade changes. Each function is
a promise about one Helm, and fails with an AssertionError."""

import inspect
import json
import random
import re
import tomllib

import value_effects
import yaml

from objects import container, of_kind, only, pod, pod_template, secret_data
from pod_promises import names_are_legal
from render import CHART, KUSTOMIZATIONS, ROOT, Helm4, Refused

LINK = "https://bundles.vendor.example/docs.zip?sig=first"
API = {"baseUrl": "https://api.vendor.example/v1", "domain": "docs.example.com", "existingSecret": "docs-api"}
# Texts that are special in YAML, TOML, Go templates, shells or regular expressions, and a link of the usual kind.
TEXTS = [
    '"',
    "'",
    "`",
    "\\",
    "\\n",
    "$",
    "${1}",
    "$HOME",
    "{{ .Release.Name }}",
    "{{",
    "}}",
    "{{`x`}}",
    "#",
    "a: b",
    "- a",
    "[a]",
    "{a}",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "|",
    ">",
    "~",
    "null",
    "true",
    "no",
    "1.10",
    "0x1f",
    "1e3",
    "2026-11-01",
    "=",
    "<script>",
    "é漢😀",
    "a\u2028b",
    "x" * 4000,
]


class QuotingDumper(yaml.SafeDumper):
    """Quotes each text: 1e3 without quotes is text for PyYAML, and a number for Helm."""


QuotingDumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def values_of(**blocks):
    """Returns the text of a file of values."""
    return yaml.dump(blocks, Dumper=QuotingDumper)


def with_link(link=LINK, **blocks):
    """Returns the text of a file of values with a link."""
    static_export = {"bundleUrl": link, **blocks.pop("staticExport", {})}
    return values_of(staticExport=static_export, **blocks)


def config_of(objects):
    """Returns the parsed configuration file of the rendered Secret."""
    return tomllib.loads(secret_data(objects)["config.toml"])


def refusal(helm, values, release="docs"):
    """Returns the message with which Helm refuses values or a release name."""
    try:
        helm.render(values, release)
    except Refused as refused:
        return str(refused)
    raise AssertionError(f"accepted: {release}, {values[:300]}")


def the_block_of_the_vendor_is_taken_unchanged(helm):
    block = {"enabled": True, "bundleUrl": LINK, "version": "2026-11"}
    objects = helm.render(values_of(staticExport=block))
    assert secret_data(objects)["bundleUrl"] == LINK
    assert config_of(objects) == {"staticExport": {"enabled": True, "version": "2026-11", "bundleUrlFile": "bundleUrl"}}


def unknown_keys_at_the_top_are_ignored(helm):
    assert helm.render(with_link(fullstack={"enabled": False}, workers=3)) == helm.render(with_link())


def is_helm_4(helm):
    """Returns whether this is the library of Helm 4, which also renders NOTES.txt and checks names."""
    return isinstance(helm, Helm4)


def closed_blocks(schema, path=()):
    """Returns the paths of the blocks in a schema that refuse unknown keys."""
    found = [path] if schema.get("additionalProperties") is False else []
    for key, inner in schema.get("properties", {}).items():
        found += closed_blocks(inner, (*path, key))
    return found


def unknown_keys_inside_blocks_are_refused(helm):
    blocks = closed_blocks(json.loads((CHART / "values.schema.json").read_text()))
    names = {".".join(path) for path in blocks}
    assert {
        "staticExport",
        "api",
        "image",
        "nginx",
        "nginx.image",
        "persistence",
        "service",
        "ingress",
        "networkPolicy",
    } == names, names
    for path in blocks:
        values = yaml.safe_load(with_link())
        block = values
        for key in path:
            block = block.setdefault(key, {})
        block["unknownKey"] = 1
        message = refusal(helm, values_of(**values))
        assert "unknownKey" in message, message


def the_schema_describes_every_value_of_the_chart(_helm):
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema.keys() == defaults.keys(), schema.keys() ^ defaults.keys()
    for path in closed_blocks({"properties": schema}):
        block, inner = defaults, {"properties": schema}
        for key in path:
            block, inner = block[key], inner["properties"][key]
        assert inner["properties"].keys() == block.keys(), (path, inner["properties"].keys() ^ block.keys())


def a_version_or_tag_that_is_not_text_is_refused_with_the_reason(helm):
    for number in ("1.10", "2", "1e3", "yes", "0x1f", "2026_11"):
        message = refusal(helm, f"staticExport:\n  bundleUrl: x\n  version: {number}\n")
        assert "staticExport.version" in message and "quotes" in message and "1.10" in message, message
        for block in ("image", "nginx.image"):
            indented = f"nginx:\n  image:\n    tag: {number}\n" if block != "image" else f"image:\n  tag: {number}\n"
            message = refusal(helm, with_link() + indented)
            assert f"{block}.tag" in message and "quotes" in message, message


def a_version_that_cannot_be_a_label_is_refused_with_the_reason(helm):
    for version in ("active", "previous", "newest"):
        assert "docwharf uses this name" in refusal(helm, with_link(staticExport={"version": version}))
    for version in (" 1.4", "1.4 ", "1\n4", "1\u008f4"):
        assert "control characters" in refusal(helm, with_link(staticExport={"version": version})), version
    refusal(helm, with_link(staticExport={"version": "x" * 201}))


def several_replicas_are_refused_with_api_or_a_volume(helm):
    assert "export job" in refusal(helm, values_of(api=API, replicaCount=2, persistence={"enabled": False}))
    assert "one writer" in refusal(helm, with_link(replicaCount=2))
    assert "one writer" in refusal(helm, with_link(replicaCount=2, persistence={"existingClaim": "docs"}))
    objects = helm.render(with_link(replicaCount=2, persistence={"enabled": False}))
    assert only(of_kind(objects, "Deployment"))["spec"]["replicas"] == 2


def values_without_effect_are_refused_with_the_reason(helm):
    assert "there is no source" in refusal(helm, "{}")
    nothing = values_of(staticExport={"enabled": False}, persistence={"enabled": False})
    assert "nothing to serve" in refusal(helm, nothing)
    assert "api.domain" in refusal(helm, values_of(api={**API, "domain": ""}))
    assert "stores no API key" in refusal(helm, values_of(api={**API, "existingSecret": ""}))
    assert "api.baseUrl is missing" in refusal(helm, with_link(api={"domain": "docs.example.com"}))
    assert "unnoticed" in refusal(helm, with_link(image={"tag": "latest"}))
    assert "unnoticed" in refusal(helm, with_link(nginx={"image": {"tag": "latest"}}))
    assert "sha256" in refusal(helm, with_link(image={"digest": "sha256:12"}))
    assert "memory" in refusal(helm, with_link(resources={"limits": {"memory": None}}))


def secrets_in_variables_are_refused(helm):
    for name in ("DOCWHARF_API_KEY", "DOCWHARF_STATIC_EXPORT__BUNDLE_URL"):
        assert "is a secret" in refusal(helm, with_link(extraEnv=[{"name": name, "value": "x"}]))


def a_link_is_in_the_secret_only_and_a_key_in_no_object(helm):
    link = "https://bundles.vendor.example/docs.zip?sig=s3cret-of-the-link"
    for mode in ("server", "sidecar"):
        objects = helm.render(with_link(link, api=API, mode=mode, ingress={"enabled": True}))
        others = [item for item in objects if item["kind"] != "Secret"]
        assert "s3cret" not in json.dumps(others)
        assert secret_data(objects).keys() == {"bundleUrl", "config.toml"}
        assert "s3cret" not in secret_data(objects)["config.toml"]
        key = {item["name"]: item for item in pod(objects)["volumes"]}["api-key"]["secret"]
        assert key["secretName"] == "docs-api" and key["items"] == [{"key": "api-key", "path": "api-key"}]
        file = {item["name"]: item.get("value") for item in container(objects, "docwharf")["env"]}[
            "DOCWHARF_API__KEY_FILE"
        ]
        assert file == "/secrets/api/api-key"
        if is_helm_4(helm):
            assert "s3cret" not in helm.render_texts(with_link(link))["docwharf/templates/NOTES.txt"]


def an_upgrade_to_a_new_link_changes_the_secret_only(helm):
    before = {"bundleUrl": LINK, "version": "2026-11"}
    after = {"bundleUrl": LINK.replace("first", "second"), "version": "2026-12"}
    for mode in ("server", "sidecar"):
        for change in (after, {**before, "bundleUrl": after["bundleUrl"]}, {**before, "enabled": False}):
            old = helm.render(values_of(staticExport=before, mode=mode))
            new = helm.render(values_of(staticExport=change, mode=mode), upgrade=True)
            changed = [item["kind"] for item in new if item not in old]
            assert changed == ["Secret"] and len(old) == len(new), changed
            assert pod_template(old) == pod_template(new)
            assert secret_data(old) != secret_data(new)


def disabled_serves_what_the_volume_has(helm):
    objects = helm.render(values_of(staticExport={"enabled": False}))
    assert config_of(objects) == {"staticExport": {"enabled": False}}
    assert "persistentVolumeClaim" in only([item for item in pod(objects)["volumes"] if item["name"] == "store"])


def any_text_in_a_link_arrives_unchanged(helm):
    chance = random.Random(25)
    characters = [chr(code) for code in [*range(0x20, 0x7F), *range(0xA1, 0x250), *range(0x4E00, 0x4E40), 0x1F600]]
    texts = TEXTS + ["".join(chance.choices(characters, k=40)).strip() for _ in range(20)]
    for number, text in enumerate(texts):
        # An editor or a block of YAML adds a newline.
        objects = helm.render(with_link(text if number % 2 else f"  {text}\n"))
        assert secret_data(objects)["bundleUrl"] == text, text
    for text in ("a\nb", "a\rb", "a\tb", "a\x7fb"):
        assert "control character" in refusal(helm, with_link(text)), repr(text)


def any_text_of_a_version_arrives_unchanged(helm):
    for text in TEXTS:
        # A label has at most 200 characters.
        if len(text) <= 200:
            for config in ("", "[staticExport]\nsha256 = '0'\n") if is_helm_4(helm) else ("[staticExport]\n",):
                objects = helm.render(with_link(staticExport={"version": text}, config=config))
                assert config_of(objects)["staticExport"]["version"] == text, text


def the_configuration_of_the_operator_is_added(helm):
    added = {"sha256": "0"}
    for text in (
        "[staticExport]\nsha256 = '0'",
        "[server]\nbasePath = '/a'\n[ \"staticExport\" ]  # x\nsha256 = '0'\n[sync]\nkeep = 1",
        "staticExport.sha256 = '0'\n",
        "# [staticExport]\r\n[staticExport]\r\nsha256 = '0'\r\n",
    ):
        objects = helm.render(with_link(config=text))
        expected = tomllib.loads(text)
        expected["staticExport"] = {**added, "enabled": True, "bundleUrlFile": "bundleUrl"}
        assert config_of(objects) == expected, text
    assert "as a table" in refusal(helm, with_link(config="staticExport = { sha256 = '0' }"))
    objects = helm.render(values_of(config='[sync]\ninbox = "/inbox"\n'))
    assert config_of(objects) == {"staticExport": {"enabled": True}, "sync": {"inbox": "/inbox"}}


def a_string_of_several_lines_is_not_a_table_or_key(helm):
    three = '"""'
    for text in (
        "note = '''\n[staticExport]\nenabled = false\nstaticExport = 1'''\n[staticExport]\nsha256 = '0'\n",
        f"note = {three}\n[staticExport]\n\\{three}\n[staticExport]\nenabled = 1\n$1 \\\\{three}\n[sync]\nkeep = 1\n",
        f"a = \"it's # '''\" # don't {three}\n[staticExport]\nsha256 = '{three}'\n",
        f"[staticExport]\n[sync]\nb = {three}\n[staticExport]{three}\n",
        f"[staticExport]\nsha256 = {three}\nenabled = 1\nversion = ''' {three}\"\nc = ''''\nbundleUrl = 1'''''\n",
        f"a = \"\"\nb = ''\nc = ''''''\nd = {three}{three}\n[staticExport]\n[sync]\nenabled = '[staticExport]'\n",
    ):
        objects = helm.render(with_link(config=text))
        expected = tomllib.loads(text)
        expected.setdefault("staticExport", {}).update(enabled=True, bundleUrlFile="bundleUrl")
        assert config_of(objects) == expected, text


def a_key_that_the_chart_adds_is_refused_in_the_configuration(helm):
    keys = {"enabled": "false", "version": "'1'", "bundleUrl": "'https://a.example/'", "bundleUrlFile": "'link'"}
    for key, value in keys.items():
        for text in (
            f"[staticExport]\nsha256 = '0'\n\n  # x\n{key} = {value}\n",
            f"[sync]\nkeep = 1\r\n[ 'staticExport' ] # x\r\n\t\"{key}\"\t= {value}\r\n[server]\r\n",
            f"staticExport.{key}={value}\n",
            f"'staticExport' . '{key}' = {value}\n[sync]\nkeep = 1\n",
        ):
            message = refusal(helm, with_link(staticExport={"version": "2"}, config=text))
            assert f"config: it sets staticExport.{key}," in message, message
            if key != "enabled":
                # The chart does not add it: neither a link nor a version is set.
                objects = helm.render(values_of(config=text))
                assert config_of(objects)["staticExport"].keys() >= {"enabled", key}, text
    # The same names in another table.
    for text in ("[sync]\nenabled = 1\n[staticExport]\n[gate]\nversion = 1\n[[a]]\nbundleUrl = 1\n", "enabled = 1\n"):
        helm.render(with_link(staticExport={"version": "2"}, config=text))


def a_variable_of_the_operator_replaces_that_of_the_chart(helm):
    objects = helm.render(with_link(extraEnv=[{"name": "DOCWHARF_SERVER__LISTEN", "value": "[::]:8080"}]))
    variables = [item for item in container(objects, "docwharf")["env"] if item["name"] == "DOCWHARF_SERVER__LISTEN"]
    assert variables == [{"name": "DOCWHARF_SERVER__LISTEN", "value": "[::]:8080"}]


def every_legal_release_name_gives_legal_names(helm):
    legal = [
        "d",
        "1",
        "docs",
        "1docs",
        "docs.example.com",
        "docs-example-com",
        "docwharf",
        "my-docwharf",
        "a--b",
        "a-b.c-d",
        "a" * 53,
        "1" * 53,
        "a" * 51 + ".1",
        "a" + "-" * 51 + "a",
        ("a." * 27)[:53],
        "x" * 44 + "-docwharf",
        "x" * 43 + "-y",
    ]
    names = set()
    for release in legal:
        for mode in ("server", "sidecar"):
            objects = helm.render(with_link(mode=mode), release)
            names_are_legal(objects)
        names.add(only(of_kind(objects, "Service"))["metadata"]["name"])
        for overrides in ({"nameOverride": "handbook"}, {"nameOverride": "1" * 63}, {"fullnameOverride": "x" * 53}):
            names_are_legal(helm.render(with_link(**overrides), release))
    assert len(names) == len(legal), "two releases have the same name"
    refusal(helm, with_link(), "a" * 54)
    # `helm template` of Helm 3 checks the length only; `helm install` checks the rest, as the library of Helm 4 does.
    for release in ("Docs", "docs_1", "-docs", "docs-", ".docs", "a..b", "") if is_helm_4(helm) else ():
        refusal(helm, with_link(), release)
    for override in ({"fullnameOverride": "1docs"}, {"fullnameOverride": "x" * 54}, {"nameOverride": "Docs"}):
        refusal(helm, with_link(**override))


def openshift_leaves_users_and_groups_to_the_platform(helm):
    context = pod(helm.render(with_link(openshift=True)))["securityContext"]
    assert not {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"} & context.keys()


def a_policy_can_be_left_out(helm):
    assert not of_kind(helm.render(with_link(networkPolicy={"enabled": False})), "NetworkPolicy")


def the_defaults_are_those_of_this_version(helm):
    version = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    image = f"ghcr.io/docwharf/docwharf:{version}"
    assert container(helm.render(with_link()), "docwharf")["image"] == image
    for file in KUSTOMIZATIONS.glob("*/*.yaml"):
        for line in file.read_text().splitlines():
            assert "ghcr.io/docwharf" not in line or line.strip() == f"image: {image}", f"{file}: {line}"


def nginx_has_the_same_configuration_everywhere(helm):
    texts = {file.read_text() for file in KUSTOMIZATIONS.glob("*/nginx.conf")}
    objects = helm.render(with_link(mode="sidecar"))
    assert texts == {only(of_kind(objects, "ConfigMap"))["data"]["nginx.conf"]}


def leaves(values, path=()):
    """Returns the paths of all values that are not blocks with keys of ours."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in ("resources",):
            yield from leaves(value, (*path, key))
        else:
            yield ".".join((*path, key))


def the_document_describes_every_value(_helm):
    document = (ROOT / "docs/kubernetes.md").read_text().split("### Values")[1].split("\n## ")[0]
    described = set(re.findall(r"^\| `([^`]+)`", document, re.MULTILINE))
    values = set(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    assert described == values, described ^ values


def each_value_has_its_effect(helm):
    for values, place, key, expected in value_effects.EFFECTS:
        found = place(helm.render(with_link(**values))).get(key)
        assert found == expected, f"{values}: {found} instead of {expected}"
    tested = {path for values, *_ in value_effects.EFFECTS for path in leaves(values)} | value_effects.ELSEWHERE
    missing = set(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    missing = {path for path in missing if not any(other == path or other.startswith(path + ".") for other in tested)}
    assert not missing, missing


def the_management_api_gets_its_variables(helm):
    objects = helm.render(values_of(api={**API, "projectId": "0123", "secretKey": "other"}))
    variables = {item["name"]: item.get("value") for item in container(objects, "docwharf")["env"]}
    assert variables["DOCWHARF_API__BASE_URL"] == API["baseUrl"]
    assert variables["DOCWHARF_API__DOMAIN"] == API["domain"]
    assert variables["DOCWHARF_API__PROJECT_ID"] == "0123"
    key = {item["name"]: item for item in pod(objects)["volumes"]}["api-key"]["secret"]
    assert key["items"] == [{"key": "other", "path": "api-key"}]


def the_linter_finds_nothing(helm):
    helm.lint(with_link())


PROMISES = [
    value
    for value in list(globals().values())
    if inspect.isfunction(value)
    and value.__module__ == __name__
    and list(inspect.signature(value).parameters) in (["helm"], ["_helm"])
    and value is not is_helm_4
]
