package stats

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
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

// UsedBy is a process's time, of all its threads, from /proc/PID/stat (proc(5), in ticks of
// 10 ms); 0 where there is no such process.
func UsedBy(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64) // the kernel writes numbers
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// Field returns the number in a line of a file as proc(5) has it; 0 if it is not there.
func Field(file, field string) float64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 64) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// Anonymous returns a process's anonymous resident memory, in MB (10^6).
func Anonymous(pid int) (float64, error) {
	kb := Field(fmt.Sprintf("/proc/%d/status", pid), "RssAnon:")
	if kb == 0 {
		return 0, fmt.Errorf("the kernel reports no anonymous memory of process %d", pid)
	}
	return kb * 1024 / 1e6, nil
}
