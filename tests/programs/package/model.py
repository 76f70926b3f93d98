import torch


def triple(x):
    return x * 3


@torch.compile(backend="aot_eager")
def compiled_triple(x):
    return triple(x)


def main():
    print(compiled_triple(torch.ones(2)).tolist())


def plain():
    """Compiles nothing itself."""
    return triple(torch.ones(2))


class Holder:
    @staticmethod
    def run():
        main()


broken = 3
