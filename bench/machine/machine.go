package machine

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Output returns what a program prints, without the blanks around it.
func Output(ctx context.Context, name string, args ...string) string {
	b, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return name + " unknown"
	}
	return strings.TrimSpace(string(b))
}

// Processor returns the model of the first processor, by proc_cpuinfo(5).
func Processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown processor"
}

// Load returns the load averages of 1, 5 and 15 minutes, by proc_loadavg(5).
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}

// ProcessorTime returns the processor time, user and system, that this process
// (syscall.RUSAGE_SELF) or its ended children (RUSAGE_CHILDREN) have used.
func ProcessorTime(who int) time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(who, &r) != nil {
		return 0 // who is neither
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
