import torch


@torch.compile
def critic(x):
    return (x**3).sum()


x = torch.tensor([1.0, 2.0], requires_grad=True)
score = critic(x)
(grad,) = torch.autograd.grad(score, x, create_graph=True)
penalty = (grad.norm(2) - 1).pow(2)
penalty.backward()
print(x.grad.shape)
