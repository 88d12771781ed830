"""Builds the wheel of this package with nothing but Python: pip wheel --no-deps plugins/sdk-python"""

import base64
import hashlib
import pathlib
import tomllib
import zipfile


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    here = pathlib.Path(__file__).parent
    project = tomllib.loads((here / "pyproject.toml").read_text())["project"]
    name = f'{project["name"].replace("-", "_")}-{project["version"]}'
    metadata = (
        f'Metadata-Version: 2.1\nName: {project["name"]}\nVersion: {project["version"]}\nSummary: {project["description"]}\n'
        f'License: {project["license"]}\nRequires-Python: {project["requires-python"]}\n')
    kept = [path for path in sorted(here.glob("sequor_plugin/*")) if path.suffix in (".py", ".pyi", ".typed") or path.name == "py.typed"]
    files = {str(path.relative_to(here)): path.read_bytes() for path in [*kept, *sorted(here.glob("sequor_plugin*_entry.py"))]}
    files[f"{name}.dist-info/METADATA"] = metadata.encode()
    files[f"{name}.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: sequor\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{name}.dist-info/RECORD"] = _record(files, f"{name}.dist-info/RECORD").encode()
    wheel = f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            # The same bytes each time: no date of the build.
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content)
    return wheel


def _record(files, record):
    """The hash and size of each file; none of the record itself."""
    def line(path, content):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(content)}\n"
    return "".join(line(path, content) for path, content in files.items()) + f"{record},,\n"
