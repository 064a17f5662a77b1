package model

import "strings"

// AlarmRemedy says what to do about the alarms of a store's servers, in etcd's words.
func AlarmRemedy(alarms ...string) string {
	if strings.Contains(strings.Join(alarms, " "), "CORRUPT") {
		return "find the member that differs (by etcdctl endpoint hashkv), take it out and let it join again with an empty directory, or restore a backup; then disarm the alarm"
	}
	if strings.Contains(strings.Join(alarms, " "), "DENIED") {
		return "let the user of netmaster's certificate, or netmaster's token, write what is below contiv.io again"
	}
	return "compact and defragment it, or raise its quota, then disarm the alarm"
}
