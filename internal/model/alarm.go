package model

import (
	"slices"
	"strings"
)

// Alarms of a store's servers: a word, etcd's own where it has one, and what it means.
const (
	AlarmFull = "NOSPACE: its space is used up, so it takes no writes"
	// AlarmEmbeddedFull is AlarmFull of netmaster's own store.
	AlarmEmbeddedFull = "NOSPACE: the space of netmaster's own store is used up, so it takes no writes"
	AlarmCorrupt      = "CORRUPT: the data of its members differ, so it takes no writes"
	// AlarmDenied is of a server whose access control has refused this client's last write.
	AlarmDenied   = "DENIED: its access control lets this client change nothing"
	AlarmNoLeader = "no leader: its servers have elected none, so it takes no writes"
)

// AlarmRemedy says what to do about the alarms of a store's servers.
func AlarmRemedy(alarms ...string) string {
	all := strings.Join(alarms, " ")
	switch {
	case strings.Contains(all, "CORRUPT"):
		return "find the member that differs (by etcdctl endpoint hashkv), take it out and let it join again with an empty directory, or restore a backup; then disarm the alarm"
	case slices.Contains(alarms, AlarmDenied):
		return "let the user of netmaster's certificate, or netmaster's token, write what is below contiv.io again"
	case slices.Contains(alarms, AlarmNoLeader):
		return "see that a majority of its servers run and reach each other"
	case slices.Contains(alarms, AlarmEmbeddedFull):
		return "delete what is not needed, and free its space with 'netctl cluster relieve'"
	}
	return "compact and defragment it, or raise its quota, then disarm the alarm"
}
