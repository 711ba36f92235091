"""The example plugin has tests of its own; `test_packages` runs them where the plugin is installed."""

collect_ignore = ["example_plugin"]
