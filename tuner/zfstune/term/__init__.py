"""What every command needs to talk to a person: units, tables, progress, the screen, signals."""
