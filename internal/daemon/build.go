package daemon

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker: -ldflags "-X github.com/contiv/netplugin/v2/internal/daemon.version=2.0.0 ...".
var version, commit, buildTime string

// BuildInfo says what a binary was built from.
type BuildInfo struct {
	Version string // semantic version, or "devel"
	Commit  string // git revision; "-dirty" when the tree had changes
	Time    string // RFC 3339; of the build, or else of the commit
	Go      string
}

// Build returns the linker's settings, filled up from what the Go tool
// recorded in the binary.
func Build() BuildInfo {
	b := BuildInfo{Version: version, Commit: commit, Time: buildTime, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		set := make(map[string]string)
		for _, s := range info.Settings {
			set[s.Key] = s.Value
		}
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		if b.Commit == "" && set["vcs.revision"] != "" {
			b.Commit = set["vcs.revision"]
			if set["vcs.modified"] == "true" {
				b.Commit += "-dirty"
			}
		}
		if b.Time == "" {
			b.Time = set["vcs.time"]
		}
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	return b
}

func (b BuildInfo) String() string {
	return fmt.Sprintf("Version: %s\nGitCommit: %s\nBuildTime: %s\nGo: %s\n", b.Version, b.Commit, b.Time, b.Go)
}
