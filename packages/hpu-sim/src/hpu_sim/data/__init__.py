"""Facts about releases, operators and hardware as files, and the modules that read those of releases and operators."""
