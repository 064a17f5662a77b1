package apiserver

import (
	"cmp"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// judgeOwn tells of this netmaster's certificates that have ended, or do soon: the
// others' are the doctor's, who has the time to ask them.
func (s *server) judgeOwn(o *api.ClusterStatus, now time.Time) {
	ended, soon := s.support.Endings(now)
	who := "netmaster " + cmp.Or(s.address, "here") + ": "
	for _, text := range ended {
		o.Wrong, o.Well = append(o.Wrong, who+text), false
	}
	for _, text := range soon {
		o.Notices = append(o.Notices, who+text)
	}
}
