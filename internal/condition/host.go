package condition

import "github.com/contiv/netplugin/v2/api"

func host(r row) *Condition { return register(Host, r) }

// The conditions of a host that its netplugin reports.
var (
	HostStore = host(row{
		name: "store", severity: api.SeverityError, notReady: true, check: api.CheckHosts,
		means:  "The cluster's store is unavailable, or cannot be watched. The host keeps its last policy, and containers cannot be attached.",
		remedy: "check that the store's servers run and the host reaches them; after a restore, 'netctl store adopt' makes hosts adopt the restored store",
	})
	HostName = host(row{
		name: "host-name", severity: api.SeverityError, notReady: true, check: api.CheckHosts,
		means:  "Another netplugin has this host's name. Containers cannot be attached.",
		remedy: "stop the other netplugin, or start this one with another --host-label",
	})
	HostDataPlane = host(row{
		name: "data-plane", severity: api.SeverityError, notReady: true, check: api.CheckDataPlane,
		means:  "The driver cannot program anything, or has not yet. Containers cannot be attached.",
		remedy: "look into the log of netplugin there; with Open vSwitch, see whether ovsdb-server and ovs-vswitchd run",
	})
	HostNetmaster = host(row{
		name: "netmaster", severity: api.SeverityError, notReady: true, check: api.CheckHosts,
		means:  "No netmaster answers the host. Containers cannot be attached.",
		remedy: "start a netmaster, or see whether the host reaches one and trusts its certificate",
	})
	HostJournal = host(row{
		name: "journal", severity: api.SeverityError, notReady: true, check: api.CheckHosts,
		means:  "netplugin cannot record what it attaches. Containers cannot be attached.",
		remedy: "see that --state-dir has room and can be written",
	})
	HostDisk = host(row{
		name: "disk", severity: api.SeverityError, notReady: true, check: api.CheckDisks,
		means:  "The file system of the state directory is full, in bytes or in files, or is read-only. Containers cannot be attached. A netplugin that has run there still starts and follows the cluster.",
		remedy: "make room in the file system of --state-dir, or remount it writable",
	})
	HostTunnel = host(row{
		name: "tunnel", severity: api.SeverityError, notReady: true, check: api.CheckDataPlane,
		means:  "The tunnel's device has a problem; or the interface that has --vtep-ip is down, has no link, or has lost the address; or the cluster does not know this host.",
		remedy: "set the interface with --vtep-ip up, and give it its address again",
	})
	HostTunnels = host(row{
		name: "tunnels", severity: api.SeverityError, check: api.CheckDataPlane,
		means:  "A host with containers that those here may send to answers no test packets of the tunnel, or none of full size, or only some of them. The host stays ready.",
		remedy: "allow UDP port 4789 (--vxlan-port) on the hosts named and between them, in both directions; if only big packets are lost, give their interfaces the same MTU; if only some are lost, check the links between them",
	})
	HostAttachments = host(row{
		name: "attachments", severity: api.SeverityError, notReady: true, check: api.CheckDataPlane,
		means:  "A container that runs here has no endpoint in the store, so that others do not reach it.",
		remedy: "netplugin writes the endpoint again once a netmaster answers; if the message says that it cannot, restart the container",
	})
	HostPorts = host(row{
		name: "ports", severity: api.SeverityError, notReady: true, check: api.CheckDataPlane,
		means:  "A container's port is not programmed: the container is cut off.",
		remedy: "the message says why; if it does not pass, restart the container",
	})
	HostSettings = host(row{
		name: "settings", severity: api.SeverityError, notReady: true, check: api.CheckDataPlane,
		means:  "The cluster has no settings, or they cannot be read.",
		remedy: "start a netmaster on this store, or restore a backup",
	})
	HostDevices = host(row{
		name: "devices", severity: api.SeverityError, notReady: true, check: api.CheckDataPlane,
		means:  "An interface that the data plane needs, or an uplink, has a problem. While containers here are on VLAN networks, the uplink in use is down or has no link.",
		remedy: "set the interface up, or see to its cable; --vlan-uplinks names the uplinks",
	})
	HostObjects = host(row{
		name: "objects", severity: api.SeverityError, check: api.CheckDataPlane,
		means:  "A problem that may cut containers off: a policy or group that cannot be read, NAT, a firewall in the way, a published port, an endpoint on a host that never registered, labels that netmaster refuses. The host stays ready.",
		remedy: "'netctl host inspect HOST' names each object, and 'netctl explain ENDPOINT' what applies to a container",
	})
	HostMTU = host(row{
		name: "mtu", severity: api.SeverityWarning, check: api.CheckDataPlane,
		means:  "Containers have a bigger MTU than the tunnel or the uplink carries now, as its interface's MTU has shrunk. Senders learn the path MTU (path MTU discovery); programs that switch that off lose packets.",
		remedy: "make the interface's MTU bigger again, or restart the containers",
	})
	HostCertificates = host(row{
		name: "certificates", severity: api.SeverityWarning, check: api.CheckCertificates,
		means:  "A certificate of netplugin's, or an authority beside it, has ended or will soon; or its files are missing, cannot be read or do not fit together. netplugin goes on with what it has read before, until it restarts.",
		remedy: "renew it, or put its files back, as the message says",
	})
	HostUnconfirmedChange = host(row{
		name: "unconfirmed", severity: api.SeverityNotice, check: api.CheckDataPlane,
		means:  "A change waits to be confirmed.",
		remedy: "'netctl confirm' or 'netctl revert' ends it; 'netctl pending' says what it is",
	})
	HostRolledBack = host(row{
		name: "rolled-back", severity: api.SeverityWarning, check: api.CheckDataPlane,
		means:  "This host has rolled back an unconfirmed change by itself, and did not learn within 5 s how the change ended. It is reported until an hour after the host has learned it.",
		remedy: "find out what the change cuts off before you make it again",
	})
	HostDrift = host(row{
		name: "drift", severity: api.SeverityWarning, check: api.CheckDataPlane,
		means:  "Flows, ports, programs, maps or devices of the data plane, or the nftables rules that belong to it, were changed from outside within the last hour. netplugin has restored them.",
		remedy: "find out who changes it: the log of netplugin there says what was changed, and when",
	})
	HostContainers = host(row{
		name: "containers", severity: api.SeverityNotice, check: api.CheckDataPlane,
		means:  "A container has deleted its interface, set it down or renamed it, or has changed its address, MAC or default route; or it has ended without being detached. netplugin looks at each container within a minute or so. It is the container's own state, and not the host's.",
		remedy: "restart the container, if it was not meant to do so (a process: repeat 'netctl attach'); if it has ended, have its runtime delete it, or release it with POST /debug/reclaimEndpoint/CONTAINER of netplugin's inspection",
	})
	HostNotes = host(row{
		name: "remarks", severity: api.SeverityNotice, check: api.CheckDataPlane,
		means:  "A problem that cuts nothing off: settings without effect, foreign flows, Docker's networks, BGP neighbors, the flow log.",
		remedy: "'netctl host inspect HOST' names each object",
	})
)

// What the doctor finds on a host beside its conditions.
var (
	HostUnchecked = host(row{
		name: "data-plane-unchecked", severity: api.SeverityWarning, check: api.CheckDataPlane,
		means:  "The host could not look over its data plane.",
		remedy: "look into the log of netplugin there, and ask again",
	})
	HostLeftover = host(row{
		name: "leftover-interface", severity: api.SeverityWarning, check: api.CheckDataPlane,
		means:  "No attachment has an interface that Contiv made.",
		remedy: "the next start of netplugin removes it, or adopts it where a container uses it; 'ip link del' removes it now",
	})
	HostUnknown = host(row{
		name: "unknown", severity: api.SeverityError, check: api.CheckDataPlane,
		means:  "The host reports a condition that this netmaster does not know, as the host's netplugin is newer. The finding has the condition's own name and severity.",
		remedy: "finish the upgrade of the netmasters",
	})
)
