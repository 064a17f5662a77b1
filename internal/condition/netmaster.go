package condition

import "github.com/contiv/netplugin/v2/api"

func netmaster(r row) *Condition { return register(Netmaster, r) }

// The conditions of a netmaster that it reports itself.
var (
	MasterStore = netmaster(row{
		name: "store", severity: api.SeverityError, notReady: true, check: api.CheckStore,
		means:  "The cluster's store cannot be read. Nothing can be changed; hosts keep their desired state.",
		remedy: "see whether the store's servers run, and whether netmaster reaches them",
	})
	MasterSpace = netmaster(row{
		name: "space", severity: api.SeverityError, notReady: true, check: api.CheckStore,
		means:  "The store takes no writes: it has raised an alarm, as when its space is used up.",
		remedy: "free space with 'netctl cluster relieve', or see to the alarm as the message says",
	})
	MasterSettings = netmaster(row{
		name: "settings", severity: api.SeverityError, notReady: true, check: api.CheckStore,
		means:  "The store has no settings of a cluster: it is empty, or another one.",
		remedy: "see where --etcd-endpoints or --data-dir lead; if the store is lost, restore a backup",
	})
	MasterSameStore = netmaster(row{
		name: "same-store", severity: api.SeverityError, check: api.CheckStore,
		means:  "Hosts use another store, or a newer state of this one. They keep their desired state.",
		remedy: "restore the right store, or have hosts adopt this one with 'netctl store adopt'; hosts' status says what they wait for",
	})
	MasterDisk = netmaster(row{
		name: "disk", severity: api.SeverityWarning, check: api.CheckDisks,
		means:  "The disk or the directory of the embedded store has a problem, or a snapshot could not be made.",
		remedy: "make room, or see to the directory as the message says",
	})
	MasterClientsTrust = netmaster(row{
		name: "clients-trust", severity: api.SeverityWarning, check: api.CheckNetmasters,
		means:  "Clients refuse netmaster's certificate again and again. It is an error while no host is alive.",
		remedy: "give those clients the authority of netmaster's certificate, or netmaster a certificate of the authority that they trust",
	})
	MasterToken = netmaster(row{
		name: "token", severity: api.SeverityWarning, check: api.CheckNetmasters,
		means:  "The token file cannot be read. The tokens read before still count.",
		remedy: "make the file readable for netmaster",
	})
	MasterAudit = netmaster(row{
		name: "audit", severity: api.SeverityWarning, check: api.CheckNetmasters,
		means:  "The audit log cannot be written. Changes go on without it.",
		remedy: "see that the audit log's file has room and can be written",
	})
	MasterFabric = netmaster(row{
		name: "fabric", severity: api.SeverityError, check: api.CheckFabric,
		means:  "The ACI fabric is not as it should be. It is tried again.",
		remedy: "wait, as it is tried again; if it does not pass, look at the controller",
	})
	MasterFabricObjects = netmaster(row{
		name: "fabric-objects", severity: api.SeverityWarning, check: api.CheckFabric,
		means:  "Parts of what is wanted are not in force in the ACI fabric, as it cannot have them.",
		remedy: "say it so that a fabric can have it, or leave it; 'netctl aci-gw inspect' names the parts",
	})
	MasterKubernetes = netmaster(row{
		name: "kubernetes", severity: api.SeverityWarning, check: api.CheckNetmasters,
		means:  "netmaster cannot watch Kubernetes' API server, or some kinds of its objects. The store's objects stay.",
		remedy: "see whether netmaster reaches the API server, and may list and watch these kinds",
	})
	MasterPodNetwork = netmaster(row{
		name: "pod-network", severity: api.SeverityWarning, check: api.CheckNetmasters,
		means:  "Pods that name no network have none.",
		remedy: "start netmaster with --pod-cidr, or make the network with netctl",
	})
	MasterHostsAuthority = netmaster(row{
		name: "hosts-authority", severity: api.SeverityWarning, check: api.CheckCertificates,
		means:  "The authority of hosts' certificates cannot be published to Kubernetes.",
		remedy: "see whether netmaster reaches the API server, and may write its config map",
	})
	MasterKubernetesObjects = netmaster(row{
		name: "kubernetes-objects", severity: api.SeverityWarning, check: api.CheckNetmasters,
		means:  "Objects of Kubernetes are not applied as written.",
		remedy: "their events and conditions say why ('kubectl describe')",
	})
	MasterNotAnswering = netmaster(row{
		name: "silent", severity: api.SeverityWarning, check: api.CheckNetmasters,
		means:  "Another netmaster is registered and does not answer the one that is asked. It is an error where netctl's --netmaster names it and it does not answer netctl.",
		remedy: "if it has ended, its registration ends within 10 s; else look into its log, or finish its upgrade",
	})
)
