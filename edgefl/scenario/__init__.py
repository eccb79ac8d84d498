"""The scenario: one YAML file that names everything a comparison depends on."""
