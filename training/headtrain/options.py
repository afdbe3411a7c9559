"""How the scripts of training/ print their help."""
import argparse


class Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Prints an option's default unless it is empty."""

    def _get_help_string(self, action):
        return action.help if action.default in (None, "", []) else super()._get_help_string(action)
