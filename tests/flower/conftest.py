"""The apps of these tests are folders of their own, which need the package flwr."""

collect_ignore_glob = ["apps/*"]
