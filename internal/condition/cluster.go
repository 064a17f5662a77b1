package condition

import "github.com/contiv/netplugin/v2/api"

func cluster(r row) *Condition { return register(Cluster, r) }

// The conditions that a netmaster finds in the cluster.
var (
	NoLeader = cluster(row{
		name: "no-leader", severity: api.SeverityError, check: api.CheckNetmasters,
		means:  "No netmaster leads. Nothing is cleaned up, and hosts that go are not reported.",
		remedy: "wait 15 s after the end of a leader, then look into the logs of netmaster",
	})
	StoreServer = cluster(row{
		name: "store-server", severity: api.SeverityError, check: api.CheckStore,
		means:  "A server of the store does not answer.",
		remedy: "start it, or take it out of the store's members and of netmaster's addresses",
	})
	StoreAlarm = cluster(row{
		name: "store-alarm", severity: api.SeverityError, check: api.CheckStore,
		means:  "A server of the store has raised an alarm. With most alarms nothing can be changed.",
		remedy: "free its space with 'netctl cluster relieve', or see etcd's documentation of the alarm",
	})
	StoreFills = cluster(row{
		name: "store-fills", severity: api.SeverityError, check: api.CheckStore,
		means:  "A server of the store has used 80 % of its quota. When all is used, nothing can be changed.",
		remedy: "netmaster's own: free its space with 'netctl cluster relieve', or delete what is not needed; another etcd: compact and defragment it, or raise its quota",
	})
	StoreMembers = cluster(row{
		name: "store-members", severity: api.SeverityWarning, check: api.CheckStore,
		means:  "The embedded store bears fewer failures than it could, has no recent snapshot, or has an authority that ends.",
		remedy: "'netctl cluster members' shows the members",
	})
	HostAway = cluster(row{
		name: "host-away", severity: api.SeverityError, check: api.CheckHosts,
		means:  "A host is away: its netplugin sends no heartbeat. Its containers keep communicating under the last policy.",
		remedy: "start netplugin there; once the host is gone for good, 'netctl host rm --force HOST' releases its endpoints and forgets it",
	})
	HostsAway = cluster(row{
		name: "many-hosts-away", severity: api.SeverityError, check: api.CheckHosts,
		means:  "More than half of the hosts are away. No endpoints are released, and services go on as before.",
		remedy: "look at the network and at the netmasters first",
	})
	HostNotReporting = cluster(row{
		name: "host-silent", severity: api.SeverityError, check: api.CheckHosts,
		means:  "A host is alive and has not reported its status for three minutes. A netmaster counts from its own start.",
		remedy: "look into the log of netplugin there: it cannot report its status",
	})
	HostUnready = cluster(row{
		name: "host-not-ready", severity: api.SeverityError, check: api.CheckHosts,
		means:  "A host is not ready. Tenant admins see this in place of the host's own conditions.",
		remedy: "ask a cluster administrator, who can see why",
	})
	HostUnreported = cluster(row{
		name: "host-unreported", severity: api.SeverityNotice, check: api.CheckHosts,
		means:  "A host is alive and has not reported its status yet.",
		remedy: "wait a minute; then look into the log of netplugin there",
	})
	HostNoHeartbeat = cluster(row{
		name: "host-no-answer", severity: api.SeverityWarning, check: api.CheckHosts,
		means:  "A host is alive and has not answered the doctor, or the doctor could not ask the hosts.",
		remedy: "ask again; then look into the log of netplugin there: it is very busy, cannot reach this netmaster, or follows the store too late",
	})
	HostDrains = cluster(row{
		name: "host-drains", severity: api.SeverityNotice, check: api.CheckHosts,
		means:  "A host drains: services send no new connections to its containers.",
		remedy: "'netctl host undrain HOST' ends it",
	})
	HostEndpoints = cluster(row{
		name: "host-endpoints", severity: api.SeverityNotice, check: api.CheckHosts,
		means:  "A host had more containers attached when it last reported than the cluster has endpoints there.",
		remedy: "wait: while containers end this passes within seconds",
	})
	HostTakenOver = cluster(row{
		name: "host-taken-over", severity: api.SeverityError, check: api.CheckCertificates,
		means:  "Another machine has joined by a token for the host's name. The certificate that the host has is not renewed any more.",
		remedy: "join the machine that has the right to the name again, with a new token",
	})
	ClockOff = cluster(row{
		name: "clock-off", severity: api.SeverityNotice, check: api.CheckHosts,
		means:  "A clock differs by more than 10 s from the answering netmaster's.",
		remedy: "synchronize the clocks of all hosts and netmasters",
	})
	ClockFarOff = cluster(row{
		name: "clock-far-off", severity: api.SeverityWarning, check: api.CheckHosts,
		means:  "A clock differs by more than five minutes from the answering netmaster's. Certificates and tokens may count as expired, or as not valid yet.",
		remedy: "synchronize the clocks of all hosts and netmasters",
	})
	CertificateEnded = cluster(row{
		name: "certificate-ended", severity: api.SeverityError, check: api.CheckCertificates,
		means:  "A certificate or an authority of a host or netmaster has ended.",
		remedy: "renew it as the message says",
	})
	CertificateExpires = cluster(row{
		name: "certificate-ends", severity: api.SeverityWarning, check: api.CheckCertificates,
		means:  "A certificate or an authority of a host or netmaster ends soon.",
		remedy: "renew it as the message says",
	})
	CertificateUnusable = cluster(row{
		name: "certificate-unusable", severity: api.SeverityWarning, check: api.CheckCertificates,
		means:  "The files of a certificate are missing, cannot be read or do not fit together. The daemon goes on with what it has read before, and has no certificate when it restarts.",
		remedy: "put the files back as the message says, or renew the certificate",
	})
	DiskUnread = cluster(row{
		name: "disk-unread", severity: api.SeverityWarning, check: api.CheckDisks,
		means:  "The disk of a daemon's directory cannot be looked at.",
		remedy: "make the directory, readable for the daemon",
	})
	DiskFull = cluster(row{
		name: "disk-full", severity: api.SeverityError, check: api.CheckDisks,
		means:  "A disk that a daemon writes to has less than 32 MiB, and less than a tenth, free.",
		remedy: "make room",
	})
	DiskFills = cluster(row{
		name: "disk-fills", severity: api.SeverityWarning, check: api.CheckDisks,
		means:  "A disk that a daemon writes to has less than 1 GiB, and less than a tenth, free.",
		remedy: "make room",
	})
	TableFills = cluster(row{
		name: "table-fills", severity: api.SeverityNotice, check: api.CheckCapacity,
		means:  "A table of a host's data plane is 80 % full.",
		remedy: "see docs/reference/restrictions.md for what fills it",
	})
	PoolFills = cluster(row{
		name: "pool-fills", severity: api.SeverityNotice, check: api.CheckCapacity,
		means:  "80 % of the VLANs, VNIs or of a network's addresses are taken.",
		remedy: "delete what is not needed, or make another network or wider ranges before all are taken",
	})
	AssertionBroken = cluster(row{
		name: "assertion-broken", severity: api.SeverityWarning, check: api.CheckOwners,
		means:  "An assertion does not hold, or cannot be checked: labels, endpoints or Kubernetes objects have changed, or a change was made with --override.",
		remedy: "change the policies that the message names, or the assertion",
	})
	ChangeWaits = cluster(row{
		name: "change-waits", severity: api.SeverityNotice, check: api.CheckOwners,
		means:  "A change waits to be confirmed. Hosts roll it back when its time is up.",
		remedy: "'netctl confirm' or 'netctl revert' ends it; 'netctl pending' says what it is",
	})
	ServicesOverlap = cluster(row{
		name: "services-overlap", severity: api.SeverityError, check: api.CheckOwners,
		means:  "A network overlaps a range of Kubernetes' service addresses. Services with addresses in both are not served.",
		remedy: "give services another range, or make another network",
	})
	FormatsDiffer = cluster(row{
		name: "formats-differ", severity: api.SeverityError, check: api.CheckVersions,
		means:  "Hosts have different formats of what they exchange. Traffic between them may be lost.",
		remedy: "finish the upgrade of netplugin",
	})
	TunnelPortsDiffer = cluster(row{
		name: "tunnel-ports-differ", severity: api.SeverityError, check: api.CheckVersions,
		means:  "Hosts have different UDP ports for VXLAN. Nothing passes between them on VXLAN networks.",
		remedy: "start netplugin everywhere with the same --vxlan-port",
	})
	VersionsDiffer = cluster(row{
		name: "versions-differ", severity: api.SeverityWarning, check: api.CheckVersions,
		means:  "Netmasters, netplugins or servers of the store have different versions.",
		remedy: "finish the upgrade, netmasters first: neighboring versions run together only for its time",
	})
	HostOld = cluster(row{
		name: "host-old", severity: api.SeverityNotice, check: api.CheckVersions,
		means:  "A host's netplugin is older than netmaster, and does not answer the doctor.",
		remedy: "finish the upgrade of netplugin there",
	})
	RecordNewer = cluster(row{
		name: "record-newer", severity: api.SeverityWarning, check: api.CheckVersions,
		means:  "A record of the store has a newer version than this netmaster writes.",
		remedy: "finish the upgrade of the netmasters",
	})
	RecordUnknown = cluster(row{
		name: "record-unknown", severity: api.SeverityWarning, check: api.CheckVersions,
		means:  "This netmaster does not know a record of the store.",
		remedy: "finish the upgrade of the netmasters; if all have one version, find out who else writes to the store",
	})
	RecordUnreadable = cluster(row{
		name: "record-unreadable", severity: api.SeverityError, check: api.CheckOwners,
		means:  "A record of the store cannot be read.",
		remedy: "delete the object and create it again, or restore a backup of the store",
	})
	AllocatedToNone = cluster(row{
		name: "allocated-to-none", severity: api.SeverityWarning, check: api.CheckOwners,
		means:  "Something is allocated in the store, and no object has it.",
		remedy: "'netctl doctor --repair' frees it",
	})
	ReferenceLeft = cluster(row{
		name: "reference-left", severity: api.SeverityNotice, check: api.CheckOwners,
		means:  "A reference is left of an object that was deleted. It costs room only.",
		remedy: "nothing; 'netctl doctor --repair' frees it",
	})
	NotAllocated = cluster(row{
		name: "not-allocated", severity: api.SeverityError, check: api.CheckOwners,
		means:  "An object has something that is not allocated to it.",
		remedy: "'netctl doctor --repair' allocates it to its owner again",
	})
	AllocatedTwice = cluster(row{
		name: "allocated-twice", severity: api.SeverityError, check: api.CheckOwners,
		means:  "Two objects have the same address, number or name.",
		remedy: "delete one of the two and create it again: it gets another one",
	})
	ObjectMissing = cluster(row{
		name: "object-missing", severity: api.SeverityError, check: api.CheckOwners,
		means:  "An object names another one that is not there.",
		remedy: "create what is missing again under that name, or delete what names it",
	})
)
