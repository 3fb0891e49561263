"""What a node needs of its machine: directories, files, processes, privileges."""
