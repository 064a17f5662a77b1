package ovs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// tableInterval is how often the switch is asked how full its tables are, and
// tableTimeout how long the answers may take. The switch keeps each number anyway.
const (
	tableInterval = 5 * time.Second
	tableTimeout  = time.Second
)

// The tables, by the names that metrics give them.
const (
	tableFlows    = "flows"          // OpenFlow flows of this driver
	tableDatapath = "datapath_flows" // flows that the datapath caches
	tableConns    = "conns"          // tracked connections
)

// tableUsage are what the switch told last of its tables.
type tableUsage struct {
	flows atomic.Uint64 // flows of ours that the switch holds

	mu   sync.Mutex
	at   time.Time
	last map[string]driver.TableStats
}

// Tables implements driver.TableReporter.
func (d *Driver) Tables() map[string]driver.TableStats {
	d.tables.mu.Lock()
	defer d.tables.mu.Unlock()
	if time.Since(d.tables.at) >= tableInterval {
		ctx, cancel := context.WithTimeout(d.run, tableTimeout)
		d.tables.last = d.daemon.readTableUsage(ctx)
		cancel()
		d.tables.at = time.Now()
	}
	out := maps.Clone(d.tables.last)
	if _, answers := out[tableDatapath]; answers { // else there may be none any more
		out[tableFlows] = driver.TableStats{Entries: d.tables.flows.Load()}
	}
	return out
}

// readTableUsage asks the switch, and on the kernel's datapath the kernel.
func (d *daemon) readTableUsage(ctx context.Context) map[string]driver.TableStats {
	out := map[string]driver.TableStats{}
	tell := func(name string, s driver.TableStats, err error) {
		if err != nil {
			d.cfg.Log.Debug("the switch does not report how full a table is", "table", name, "error", err)
			return
		}
		out[name] = s
	}
	text, err := control(ctx, d.cfg.RunDir, "upcall/show")
	var s driver.TableStats
	if err == nil {
		s, err = datapathFlows(text, d.cfg.Datapath)
	}
	tell(tableDatapath, s, err)
	s, err = d.conntrack(ctx)
	tell(tableConns, s, err)
	return out
}

var flowsRE = regexp.MustCompile(`flows\s*:\s*\(current (\d+)\).*\(limit (\d+)\)`)

// datapathFlows reads upcall/show: a header without indentation for each
// datapath, and how many flows it caches of how many. The switch sets the limit
// by how fast it can look through them.
func datapathFlows(text, datapath string) (driver.TableStats, error) {
	ours := false
	for line := range strings.Lines(text) {
		if line[0] != ' ' && line[0] != '\t' {
			ours = strings.HasPrefix(line, datapath+"@")
		}
		if m := flowsRE.FindStringSubmatch(line); ours && m != nil {
			return twoNumbers(m[1], m[2])
		}
	}
	return driver.TableStats{}, fmt.Errorf("upcall/show does not list a datapath %s", datapath)
}

// Files in which the kernel tells how many connections it tracks in this network
// namespace, those of its datapath included, and how many it may.
const (
	conntrackCount = "/proc/sys/net/netfilter/nf_conntrack_count"
	conntrackMax   = "/proc/sys/net/netfilter/nf_conntrack_max"
)

// conntrack tells how full the table of tracked connections is. For the datapath in
// user space the switch knows, for the kernel's the kernel.
func (d *daemon) conntrack(ctx context.Context) (driver.TableStats, error) {
	if d.cfg.Datapath != "netdev" {
		count, err := os.ReadFile(conntrackCount)
		most, err2 := os.ReadFile(conntrackMax)
		if err := errors.Join(err, err2); err != nil {
			return driver.TableStats{}, err
		}
		return twoNumbers(string(count), string(most))
	}
	count, err := control(ctx, d.cfg.RunDir, "dpctl/ct-get-nconns", d.datapath())
	if err != nil {
		return driver.TableStats{}, err
	}
	most, err := control(ctx, d.cfg.RunDir, "dpctl/ct-get-maxconns", d.datapath())
	if err != nil {
		return driver.TableStats{}, err
	}
	return twoNumbers(count, most)
}

// datapath is the name that the switch gives the datapath of its bridges.
func (d *daemon) datapath() string { return d.cfg.Datapath + "@ovs-" + d.cfg.Datapath }

func twoNumbers(entries, capacity string) (s driver.TableStats, err error) {
	var errs [2]error
	s.Entries, errs[0] = strconv.ParseUint(strings.TrimSpace(entries), 10, 64)
	s.Capacity, errs[1] = strconv.ParseUint(strings.TrimSpace(capacity), 10, 64)
	return s, errors.Join(errs[:]...)
}
