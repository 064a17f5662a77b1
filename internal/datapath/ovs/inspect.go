package ovs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Inspect implements driver.Driver: the bridge's ports, then its flows by
// stage, as the switch has them now. Ports are given by name, so that the text
// does not depend on the numbers that the switch happened to choose.
func (d *Driver) Inspect(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns.sw == nil || d.conns.db == nil {
		return "", model.Errorf(model.ErrUnavailable, "open vswitch: the switch or its database does not answer")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "bridge %s datapath %s\n", d.cfg.Bridge, d.cfg.Datapath)
	have := map[string]portState{}
	byNumber := map[uint32]string{}
	d.conns.db.mu.Lock()
	for name := range d.conns.db.named {
		if h := d.conns.db.port(name); h.bridge == d.cfg.Bridge {
			have[name] = h
			if n := h.number(); n != 0 {
				byNumber[n] = name
			}
		}
	}
	d.conns.db.mu.Unlock()
	names := slices.Sorted(maps.Keys(have))
	for _, name := range names {
		h := have[name]
		b.WriteString("port " + name + " " + cmp.Or(h.port.ExternalIDs[markKey], "foreign"))
		if e := h.port.ExternalIDs[endpointKey]; e != "" {
			b.WriteString(" " + e)
		}
		if e := h.failure(); e != "" {
			fmt.Fprintf(&b, " error %q", e)
		}
		b.WriteByte('\n')
	}
	type line struct {
		table    uint8
		priority uint16
		text     string
	}
	var lines []line
	if err := d.conns.sw.DumpFlows(ctx, openflow.AllFlows, func(s openflow.FlowStats) {
		lines = append(lines, line{s.Flow.Table, s.Flow.Priority, d.names.describe(s, byNumber)})
	}); err != nil {
		return "", model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	slices.SortFunc(lines, func(x, y line) int {
		return cmp.Or(cmp.Compare(x.table, y.table), cmp.Compare(y.priority, x.priority), strings.Compare(x.text, y.text))
	})
	stage := -1
	for _, l := range lines {
		if int(l.table) != stage {
			stage = int(l.table)
			fmt.Fprintf(&b, "table %d %s\n", stage, pipeline.Stage(l.table))
		}
		fmt.Fprintf(&b, "  %s\n", l.text)
	}
	return b.String(), nil
}

var meterNumber = regexp.MustCompile(`meter:[0-9]+`)

// nameMeters names the meters that follow from ports' numbers, which are names here too.
func nameMeters(text string) string {
	return meterNumber.ReplaceAllStringFunc(text, func(m string) string {
		n, err := strconv.ParseUint(strings.TrimPrefix(m, "meter:"), 10, 32)
		if err != nil || !pipeline.OfPort(uint32(n)) {
			return m
		}
		return "meter:memberships"
	})
}

var portNumber = regexp.MustCompile(`(in_port=|output:|reg5=)(0x[0-9a-f]+|[0-9]+)|set_field:(0x[0-9a-f]+)->reg5`)

func namePorts(text string, byNumber map[uint32]string) string {
	return portNumber.ReplaceAllStringFunc(text, func(m string) string {
		p := portNumber.FindStringSubmatch(m)
		digits := p[2] + p[3]
		n, err := strconv.ParseUint(digits, 0, 32)
		name, ok := byNumber[uint32(n)]
		if err != nil || !ok {
			return m
		}
		return strings.Replace(m, digits, name, 1)
	})
}
