package ovs

import (
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// BenchmarkEstablished measures what an audit that comes costs beside n connections
// that live: the Apply, and of it how long the switch takes to list them.
func BenchmarkEstablished(b *testing.B) {
	for _, n := range []int{0, 1000, 20000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := newAuditing(b)
			defer l.drv.Close()
			l.connect(b, l.from, l.to, n)
			events, err := l.drv.Monitor(b.Context(), driver.MonitorOptions{NoDrops: true})
			if err != nil {
				b.Fatal(err)
			}
			var took, list time.Duration
			rounds, told := 0, uint64(0)
			for b.Loop() {
				began := time.Now()
				l.apply(b, l.with)
				took += time.Since(began)
				began = time.Now()
				if _, err := control(b.Context(), l.RunDir, "dpctl/dump-conntrack", l.drv.daemon.datapath(), "zone="+strconv.Itoa(int(l.from.Network))); err != nil {
					b.Fatal(err)
				}
				list += time.Since(began)
				rounds++
				l.apply(b, l.without)
				for n > 0 {
					if e := <-events; e.Established {
						told = e.Count
						break
					}
				}
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(rounds), "ms/audit")
			b.ReportMetric(float64(list.Microseconds())/1000/float64(rounds), "ms/list")
			b.ReportMetric(float64(told), "told")
		})
	}
}
