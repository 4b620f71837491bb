"""Import the harness's fixtures that services need, too."""

from tests.harness.conftest import layers, zygote  # noqa: F401
