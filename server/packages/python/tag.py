"""Gives the wheel the platforms of the programs in it, which the build states in a variable."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['TREFOIL_PLATFORM']}"
