"""assembly/Dockerfile and the pinned requirements its images are made of."""

import ast
import re
import sys
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IMAGES = ("storage-svc", "gateway-svc", "admin-api", "demo", "spark")
#: Service → the variable with the address of its /readyz.
HEALTH_ADDRESSES = {
    "storage-svc": "MILLRACE_STORAGE_HTTP",
    "gateway-svc": "MILLRACE_GATEWAY_HTTP",
    "admin-api": "MILLRACE_ADMIN_HEALTH_HTTP",
}
#: Requirements file of an image → the packages of ours that its service imports.
CONTENTS = {
    "storage": ("protocol-lib", "services/contract", "services/chassis", "storage-svc"),
    "gateway": ("protocol-lib", "services/contract", "services/chassis", "gateway-svc"),
    "admin": ("protocol-lib", "services/contract", "services/chassis", "admin-api"),
    "demo": ("assembly/demo",),
    "spark": ("spark",),
}
#: Modules whose distribution has another name, or that another distribution always brings.
DISTRIBUTIONS = {
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "google": "protobuf",
    "re2": "google-re2",
    "yaml": "pyyaml",
    "starlette": "fastapi",
    "h11": "uvicorn",
    "jwt": "pyjwt",
    "pydantic_core": "pydantic",
}
TOOLS = {"pytest", "mypy", "ruff", "hypothesis", "grpcio-tools", "uv", "import-linter", "hatchling", "schemathesis"}
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+) \\$", re.M)


@dataclass
class Stage:
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]


@pytest.fixture(scope="module")
def stages(root: Path) -> dict[str, Stage]:
    text = (root / "assembly" / "Dockerfile").read_text()
    assert not text.startswith("# syntax"), "a syntax line needs BuildKit"
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found: dict[str, Stage] = {}
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        instruction, _, value = line.partition(" ")
        if instruction == "FROM":
            base, name = value.split(" AS ")
            found[name] = Stage(base)
        elif found:
            list(found.values())[-1].instructions.append((instruction, value))
    return found


def pins(path: Path) -> dict[str, str]:
    return {name.lower().replace("_", "-"): version for name, version in PIN.findall(path.read_text())}


def normal(requirement: str) -> str:
    return re.split(r"[=<>!~\[; ]", requirement)[0].lower().replace("_", "-")


#: Parts of the chassis that an image does without. Its service imports none, as contracts of import-linter see to.
HTTP_RING, BEARER_TOKENS = "service_chassis/http", "service_chassis/bearer_tokens.py"
REGISTRY = "service_chassis/schema_registry"
WITHOUT = {"storage": (HTTP_RING, BEARER_TOKENS, REGISTRY), "gateway": (HTTP_RING, REGISTRY)}


@cache
def imports_of(path: Path) -> set[str]:
    """Return the names that a module imports from, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@cache
def imported(folder: Path, without: tuple[str, ...] = ()) -> set[str]:
    """Return the distributions of others that the modules below a folder import, in functions too."""
    found = set[str]()
    for path in (folder / "src").rglob("*.py"):
        if any(f"{part}/" in f"{path.as_posix()}/" for part in without):
            continue
        found |= imports_of(path)
    ours = {each.name for each in (*ROOT.glob("*/src/*"), *ROOT.glob("*/*/src/*"))}
    return {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in found - ours - sys.stdlib_module_names}


def chain(stages: dict[str, Stage], name: str) -> list[Stage]:
    """Return a stage and those it is built from."""
    found = []
    while name in stages:
        found.append(stages[name])
        name = stages[name].base
    return found


def test_every_image_is_a_stage_and_spark_comes_last(stages: dict[str, Stage]) -> None:
    assert [name for name in stages if name in IMAGES] == list(IMAGES)
    assert list(stages)[-1] == "spark"


def test_the_base_image_is_pinned_to_a_python_and_a_debian(stages: dict[str, Stage], root: Path) -> None:
    foreign = {stage.base for stage in stages.values()} - set(stages)
    assert foreign == {"${BASE_IMAGE}"}
    assert "\nARG BASE_IMAGE=python:3.11-slim-bookworm\n" in (root / "assembly" / "Dockerfile").read_text()


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_without_privileges_and_carries_no_build_tools(image: str, stages: dict[str, Stage]) -> None:
    assert stages[image].values("USER") == ["10001:10001"]
    assert not {"build", "third-party", "packages"} & {stage.base for stage in chain(stages, image)}
    runs = [command for stage in chain(stages, image) for command in stage.values("RUN")]
    assert not any("pip" in command for command in runs)
    installed = [command for command in runs if "apt-get" in command]
    assert len(installed) == (1 if image == "spark" else 0)
    assert all(
        "--no-install-recommends" in command and "rm -rf /var/lib/apt/lists/*" in command for command in installed
    )


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_says_what_it_is(image: str, stages: dict[str, Stage], root: Path) -> None:
    labels = " ".join(value for stage in chain(stages, image) for value in stage.values("LABEL"))
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    for label in ("title", "description", "vendor", 'licenses="Apache-2.0"', f'version="{version}"'):
        assert f"org.opencontainers.image.{label}" in labels


@pytest.mark.parametrize("image", IMAGES[:3])
def test_a_service_image_has_a_health_check_and_is_started_by_its_name(image: str, stages: dict[str, Stage]) -> None:
    assert stages[image].values("ENTRYPOINT") == [f'["{image}"]']
    (check,) = stages[image].values("HEALTHCHECK")
    variable = HEALTH_ADDRESSES[image]
    assert check.endswith(f'CMD ["healthcheck", "{variable}"]')
    assert f"{variable}=0.0.0.0:" in " ".join(stages[image].values("ENV"))


def test_what_is_installed_is_checked_against_hashes_and_nothing_is_fetched_by_name(stages: dict[str, Stage]) -> None:
    commands = [command for stage in stages.values() for command in stage.values("RUN")]
    fetching = [command for command in commands if "pip" in command and "--no-index" not in command]
    own = [command for command in fetching if "/wheels/own" in command]
    assert len(own) == 1
    assert "--no-deps" in own[0]
    for command in fetching:
        assert command in own or "--require-hashes" in command


def test_no_stage_uses_what_only_buildkit_knows(stages: dict[str, Stage]) -> None:
    for stage in stages.values():
        for instruction, value in stage.instructions:
            assert not (
                instruction in ("RUN", "COPY", "ADD") and re.match(r"--(mount|link|chmod|security|network)", value)
            )
            assert "<<" not in value


@pytest.mark.parametrize("image", [*CONTENTS, "build"])
def test_pins_are_those_of_development_with_every_hash(image: str, root: Path) -> None:
    folder = root / "requirements"
    development, here = pins(folder / "development.txt"), pins(folder / f"{image}.txt")
    assert here
    assert here == {name: development.get(name) for name in here}
    text = (folder / f"{image}.txt").read_text()
    assert "://" not in text
    assert all("--hash=sha256:" in block for block in re.split(r"^(?=[a-z0-9])", text, flags=re.M) if "==" in block)


@pytest.mark.parametrize("image", CONTENTS)
def test_an_image_carries_what_its_packages_import_and_no_tools(image: str, root: Path) -> None:
    here = set(pins(root / "requirements" / f"{image}.txt"))
    without = WITHOUT.get(image, ())
    assert set().union(*(imported(root / folder, without) for folder in CONTENTS[image])) <= here
    protoc = {"grpcio-tools"} if image in ("admin", "spark") else set()  # it compiles schemas of records
    assert not here & (TOOLS - protoc)


@pytest.mark.parametrize(("image", "most"), [("storage", 15), ("gateway", 14)])
def test_storage_and_gateway_stay_small(image: str, most: int, root: Path) -> None:
    assert len(pins(root / "requirements" / f"{image}.txt")) <= most


def test_the_wheel_of_the_images_has_every_package(stages: dict[str, Stage], root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    sources = {str(path.relative_to(root)) for path in (*root.glob("*/src/*"), *root.glob("*/*/src/*"))}
    assert set(packages) == {path for path in sources if not path.endswith((".egg-info", "__pycache__"))}
    assert sorted(project["tool"]["hatch"]["build"]["dev-mode-dirs"]) == sorted(
        {path.rpartition("/")[0] for path in packages}
    )
    copied = " ".join(stages["packages"].values("COPY")).split()
    ignored = (root / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    for needed in ("pyproject.toml", "README.md", "LICENSE", *(path.split("/src/")[0] for path in packages)):
        assert needed in copied
        assert f"!{needed.split('/')[0]}" in ignored


def test_the_distribution_declares_what_it_imports_and_no_name_of_ours(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    base = {normal(requirement) for requirement in project["dependencies"]}
    extras = {
        name: {normal(each) for each in requirements} for name, requirements in project["optional-dependencies"].items()
    }
    assert project["name"] == "millrace-broker"
    assert not {name for name in base.union(*extras.values()) if "millrace" in name}
    for folder in ("protocol-lib", "services/contract", "services/chassis", "storage-svc", "gateway-svc"):
        assert imported(root / folder, (REGISTRY,)) <= base
    assert imported(root / "services/chassis") <= base | extras["schemas"]
    assert imported(root / "admin-api") <= base | extras["schemas"]
    assert imported(root / "assembly/launcher") - {"pytest"} <= base  # the plugin is imported by pytest alone
    assert imported(root / "spark") <= base | extras["spark"]
    assert imported(root / "assembly/demo") <= base | extras["demo"]
    assert extras["spark"] <= extras["demo"]  # the demonstration runs the ETL job
