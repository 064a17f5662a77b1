package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// changeKind is the kind of problem that tells of a change that waits to be confirmed.
const changeKind = "change"

// notRolledBack fails when this host has gone back from a change by itself.
func notRolledBack(_ context.Context, cfg *Config, _ *observation) error {
	var texts []string
	for _, b := range cfg.Cluster.Unconfirmed.Rollbacks() {
		text := fmt.Sprintf("change %s was not confirmed in time, and at %s this host rolled it back by itself: ", b.ID, b.At.Format(time.RFC3339))
		if b.EndedAt.IsZero() {
			text += "it does not know how the change ended, and the previous state stays in force"
		} else {
			text += fmt.Sprintf("it was cut off, or netmaster and the store were down; it learned at %s how the change ended", b.EndedAt.Format(time.RFC3339))
		}
		texts = append(texts, text)
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

var (
	unconfirmedDesc = prometheus.NewDesc("contiv_netplugin_unconfirmed_changes",
		"Changes that wait to be confirmed, by state: on (in force here), off (the previous settings are).", []string{"state"}, nil)
	rolledBackDesc = prometheus.NewDesc("contiv_netplugin_rollbacks_total",
		"Unconfirmed changes that this host has rolled back by itself, without knowing how they ended.", nil, nil)
)

var unconfirmedDescs = []*prometheus.Desc{unconfirmedDesc, rolledBackDesc}

func (m *hostMetrics) collectUnconfirmed(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	on, off, alone := m.cluster.Unconfirmed.Count()
	gauge(unconfirmedDesc, float64(on), "on")
	gauge(unconfirmedDesc, float64(off), "off")
	count(rolledBackDesc, uint64(alone))
}
