import torch


def normalize(x, weight, bias, mean, var, out, save_mean, save_var):
    res = torch.native_batch_norm(x, weight, bias, mean, var, True, 0.5, 0.6, out=(out, save_mean, save_var))
    return res[0] + 0


torch.manual_seed(0)
x = torch.rand(5, 5, 5)
weight, bias, mean, var = (torch.rand(5) for _ in range(4))
buffers = torch.empty(5, 5, 5), torch.empty(5), torch.empty(5)
y = torch.compile(normalize)(x, weight, bias, mean, var, *buffers)
print(y.shape)
