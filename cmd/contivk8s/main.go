// The number of processors does not change during a process of milliseconds. Looking for a
// change costs a thirtieth of its time.
//
//go:debug updatemaxprocs=0

package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// Set by the linker: -ldflags "-X main.version=2.0.0".
var version, commit, buildTime string

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "-version", "--version":
			fmt.Print(versionText())
			return
		case "-h", "-help", "--help":
			fmt.Print(usage)
			return
		}
		fmt.Fprintf(os.Stderr, "contivk8s: unexpected argument %q\n%s", os.Args[1], usage)
		os.Exit(2)
	}
	os.Exit(cni.Run("CNI plugin contivk8s " + versionLine()))
}

const usage = `contivk8s is a CNI plugin: a container runtime starts it with CNI_COMMAND and
other variables of the CNI specification, and its configuration on stdin.
usage: contivk8s [-version]
`

func versionLine() string {
	if version != "" {
		return version
	}
	return "devel"
}

func versionText() string {
	commit, at := commit, buildTime
	if info, ok := debug.ReadBuildInfo(); ok && commit == "" && at == "" {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value
			case "vcs.time":
				at = s.Value
			}
		}
	}
	return fmt.Sprintf("Version: %s\nGitCommit: %s\nBuildTime: %s\n", versionLine(), commit, at)
}
