"""Compiles the walker of records while the package is built, where a C compiler is; without one it runs interpreted.

An editable install gets the compiled module next to its source, a wheel gets it inside and is for this platform then.
In the module stands the digest of its source, so that it is not used with another one.
"""

import hashlib
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = Path("protocol-lib/src/protocol_lib/records")
_TARGET = Path("protocol_lib/records")
_MODULE = "protocol_lib.records._walker"


def compiled(root: Path, folder: Path, flags: tuple[str, ...] = ("-O2", "-g0")) -> Path:
    """Compile the walker of a checkout in an empty folder, and return the extension module."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    source, types = root / _FOLDER / "_walker.py", root / _FOLDER / "_walker.pxd"
    digest = hashlib.sha256(source.read_bytes() + types.read_bytes()).hexdigest()
    copy = folder / _TARGET / source.name
    copy.parent.mkdir(parents=True)
    for package in (copy.parent, copy.parent.parent):
        (package / "__init__.py").touch()
    copy.write_text(f'{source.read_text(encoding="utf-8")}\n\nCOMPILED_FROM = "{digest}"\n', encoding="utf-8")
    shutil.copy(types, copy.parent)
    extension = Extension(_MODULE, [str(copy)], extra_compile_args=list(flags), extra_link_args=list(flags))
    modules = cythonize([extension], quiet=True, build_dir=str(folder / "c"))
    build = Distribution({"name": "walker", "ext_modules": modules}).get_command_obj("build_ext")
    build.build_lib, build.build_temp = str(folder / "lib"), str(folder / "objects")
    build.ensure_finalized()
    build.run()
    return folder / "lib" / _TARGET / f"_walker{sysconfig.get_config_var('EXT_SUFFIX')}"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="millrace-walker-"))
        root = Path(self.root)
        try:
            module = compiled(root, self._folder)
        except (Exception, SystemExit) as fault:  # of a compiler there are many
            print(f"The walker of records is not compiled, it runs interpreted: {fault}", file=sys.stderr)
            if version == "editable":
                for stale in (root / _FOLDER).glob("_walker.*.so"):
                    stale.unlink()
            return
        if version == "editable":
            # Renamed, as a process may have the file of that name loaded.
            waiting = root / _FOLDER / f".{module.name}"
            shutil.copy(module, waiting)
            waiting.rename(root / _FOLDER / module.name)
            return
        build_data["force_include"][str(module)] = str(_TARGET / module.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, *_: object) -> None:
        if self.target_name == "wheel":
            shutil.rmtree(self._folder, ignore_errors=True)
