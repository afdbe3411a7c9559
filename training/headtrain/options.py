"""How the scripts of training/ print their help."""
import argparse


class Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Names an option's default where there is one that says something."""

    def _get_help_string(self, action):
        return action.help if action.default in (None, "", []) else super()._get_help_string(action)
