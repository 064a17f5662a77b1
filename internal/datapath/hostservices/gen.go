package hostservices

// The programs are compiled by clang 14 and committed, so that building needs
// no clang; the test TestCompiledObjectIsCurrent of package ebpf compiles them again.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -no-global-types -target bpfel -go-package hostservices sockets bpf/sockets.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-14 -strip llvm-strip-14 -no-global-types -target bpfel -go-package hostservices clients bpf/clients.c -- -O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu
