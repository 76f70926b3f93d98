"""One file a question. Each asks a lab for trials and returns findings; none holds a process or a tensor."""
