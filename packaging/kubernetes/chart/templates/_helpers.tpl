{{- define "contiv.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "contiv.labels" -}}
app.kubernetes.io/name: contiv
app.kubernetes.io/part-of: contiv
{{- end }}

{{- define "contiv.controlPlane" -}}
{{- required "controlPlane.address must be the address of the node on which netmaster runs: --set controlPlane.address=10.0.0.1" (first (append .Values.controlPlane.addresses .Values.controlPlane.address)) -}}
{{- end }}

{{- /* Where all netmasters are at a port, comma-separated, with a prefix. */ -}}
{{- define "contiv.everywhere" -}}
{{- $all := list -}}
{{- range (default (list (include "contiv.controlPlane" .root)) .root.Values.controlPlane.addresses) -}}
{{- $all = append $all (printf "%s%s" $.prefix (include "contiv.at" (dict "host" . "port" $.port))) -}}
{{- end -}}
{{- join "," $all -}}
{{- end }}

{{- /* An address and a port, as URLs have them. */ -}}
{{- define "contiv.at" -}}
{{- if contains ":" .host }}[{{ .host }}]{{ else }}{{ .host }}{{ end }}:{{ .port }}
{{- end }}

{{- define "contiv.scheme" -}}
{{ if .Values.secure.enabled }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- define "contiv.store" -}}
{{- if .Values.store.endpoints -}}
{{ join "," .Values.store.endpoints }}
{{- else -}}
{{ include "contiv.everywhere" (dict "root" . "port" .Values.netmaster.etcdPort "prefix" (ternary "https://" "http://" .Values.secure.enabled)) }}
{{- end }}
{{- end }}

{{- /* A cluster has Contiv once: the names of all objects are fixed. */ -}}
{{- define "contiv.once" -}}
{{- range list "Deployment" "DaemonSet" }}
{{- $of := dig "metadata" "annotations" dict (lookup "apps/v1" . "kube-system" "contiv-netmaster") }}
{{- $name := get $of "meta.helm.sh/release-name" }}
{{- $namespace := get $of "meta.helm.sh/release-namespace" }}
{{- if and $name (or (ne $name $.Release.Name) (ne $namespace $.Release.Namespace)) }}
{{- fail (printf "this cluster has Contiv already, by the release %s in namespace %s, and can have it once: upgrade that release, or uninstall it first (docs/how-to/kubernetes.md, Uninstall)" $name $namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A Secret that pods or Prometheus would wait for. helm template has no cluster to ask. */ -}}
{{- define "contiv.secret" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- $has := dig "data" dict (lookup "v1" "Secret" "kube-system" .name) }}
{{- range .keys }}
{{- if not (hasKey $has .) }}
{{- fail (printf "%s: namespace kube-system has no Secret %s with the key %s: %s" $.value $.name . $.remedy) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What cannot work, or would cut off nodes that run. */ -}}
{{- define "contiv.check" -}}
{{- include "contiv.once" . }}
{{- if not (regexMatch "^([^/: ]*|[0-9a-fA-F:]*)$" .Values.controlPlane.address) }}
{{- fail (printf "controlPlane.address %s: give the address alone, such as 10.0.0.1, without scheme and port" .Values.controlPlane.address) }}
{{- end }}
{{- if not (or (and .Values.store.endpoints (not .Values.secure.enabled)) (regexMatch "^([0-9.]*|[0-9a-fA-F:]*|CONTROL_PLANE_ADDRESS)$" .Values.controlPlane.address)) }}
{{- fail (printf "controlPlane.address %s is a name: netmaster listens there, and takes an address of its node" .Values.controlPlane.address) }}
{{- end }}
{{- range .Values.store.endpoints }}
{{- if and $.Values.secure.enabled (hasPrefix "http://" .) }}
{{- fail (printf "store.endpoints: anyone who can reach %s controls the cluster: serve it by TLS and name it as https://, with store.tlsSecret if it asks for certificates; without TLS of any kind --set secure.enabled=false" .) }}
{{- end }}
{{- end }}
{{- if and .Values.store.tlsSecret (not (and .Values.store.endpoints .Values.secure.enabled)) }}
{{- fail "store.tlsSecret: is for store.endpoints with secure.enabled" }}
{{- end }}
{{- if .Values.store.tlsSecret }}
{{- include "contiv.secret" (dict "value" "store.tlsSecret" "name" .Values.store.tlsSecret "keys" (list "ca.crt" "tls.crt" "tls.key") "remedy" (printf "kubectl -n kube-system create secret generic %s --from-file=ca.crt --from-file=tls.crt --from-file=tls.key" .Values.store.tlsSecret)) }}
{{- end }}
{{- if and .Values.store.endpoints .Values.secure.acceptPlain }}
{{- fail "secure.acceptPlain: is for netmaster's own etcd; leave store.endpoints out" }}
{{- end }}
{{- if and .Values.secure.enabled (gt (int .Values.netmaster.replicas) 1) }}
{{- fail "netmaster.replicas: with secure.enabled each netmaster has its address: list their nodes in controlPlane.addresses" }}
{{- end }}
{{- if not .Values.services.enabled }}
{{- fail "services.enabled: cannot be false: where kube-proxy alone leads pods to services, NetworkPolicies see the node's address instead of the pod's; leave it out, kube-proxy may run beside" }}
{{- end }}
{{- if and .Values.secure.acceptPlain (not .Values.secure.enabled) }}
{{- fail "secure.acceptPlain: is for an installation that is turned secure; leave it out, or secure.enabled=false" }}
{{- end }}
{{- if and (gt (int .Values.netmaster.replicas) 1) (not .Values.store.endpoints) }}
{{- fail "netmaster.replicas: more than one share an etcd of your own: set store.endpoints" }}
{{- end }}
{{- include "contiv.checkAddresses" . }}
{{- if not .Values.secure.enabled }}
{{- include "contiv.secret" (dict "value" "token.secret" "name" .Values.token.secret "keys" (list "token") "remedy" (printf "kubectl -n kube-system create secret generic %s --from-literal=token=$(openssl rand -hex 32)" .Values.token.secret)) }}
{{- end }}
{{- if .Values.monitoring.enabled }}
{{- if not .Values.secure.enabled }}
{{- fail "monitoring.enabled: needs secure.enabled: without TLS anyone who reaches a node's port 9006 could detach its containers" }}
{{- end }}
{{- if regexMatch "--rest-address" (join " " .Values.netplugin.args) }}
{{- fail "monitoring.enabled: sets --rest-address=0.0.0.0:9006 of netplugin: leave that flag out of netplugin.args" }}
{{- end }}
{{- include "contiv.secret" (dict "value" "monitoring.secret" "name" .Values.monitoring.secret "keys" (list "token" "ca.crt") "remedy" "make it as docs/how-to/metrics.md says, with netmaster running, and then upgrade with monitoring.enabled=true") }}
{{- end }}
{{- $is := lookup "apps/v1" "Deployment" "kube-system" "contiv-netmaster" }}
{{- if and $is (not .Values.store.endpoints) }}
{{- $args := default list (first $is.spec.template.spec.containers).args }}
{{- $secure := has "--secure" $args }}
{{- if and .Values.secure.enabled (not .Values.secure.acceptPlain) (not $secure) }}
{{- fail "this cluster's netmaster is plain: to turn it secure upgrade with --set secure.acceptPlain=true first, and without it when all pods of contiv-netplugin are ready (docs/how-to/kubernetes-plain.md); to leave it plain, --set secure.enabled=false" }}
{{- end }}
{{- if and $secure (not (has "--accept-plain" $args)) (not .Values.secure.enabled) }}
{{- fail "this cluster's netmaster is secure, and would not start plainly: leave secure.enabled=false out; to go back to plain for good, upgrade with --set secure.acceptPlain=true first (docs/how-to/kubernetes-plain.md)" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "contiv.checkAddresses" -}}
{{- with .Values.controlPlane.addresses }}
{{- if lt (len .) (ternary 2 3 (not (empty $.Values.store.endpoints))) }}
{{- fail "controlPlane.addresses: must be three or more: two netmasters stop writing when either is down; for one set controlPlane.address" }}
{{- end }}
{{- if and $.Values.controlPlane.address (not (has $.Values.controlPlane.address .)) }}
{{- fail (printf "controlPlane.addresses: lacks controlPlane.address %s: list that node too, or set controlPlane.address= if no netmaster ran there" $.Values.controlPlane.address) }}
{{- end }}
{{- if or (not $.Values.secure.enabled) $.Values.secure.acceptPlain }}
{{- fail "controlPlane.addresses: needs secure.enabled without secure.acceptPlain: turn the installation secure first (docs/how-to/kubernetes-plain.md)" }}
{{- end }}
{{- else }}
{{- if lookup "apps/v1" "DaemonSet" "kube-system" "contiv-netmaster" }}
{{- fail "this cluster has a netmaster on each node of controlPlane.addresses, which one alone does not replace: set controlPlane.addresses as before" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* How Prometheus asks netmaster or netplugin (.component), and what it calls them. */ -}}
{{- define "contiv.scrape" -}}
scheme: https
authorization:
  credentials:
    name: {{ .secret }}
    key: token
tlsConfig:
  ca:
    secret:
      name: {{ .secret }}
      key: ca.crt
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - targetLabel: job
    replacement: contiv-{{ .component }}
{{- end }}

{{- /* Not empty where pods speak to Open vSwitch. What takes Contiv off does on each node,
whatever that was installed with: a bridge may be there. */ -}}
{{- define "contiv.openvswitch" -}}
{{- if or .Values.uninstall.enabled (eq .Values.netplugin.driver "ovs") }}yes{{ end }}
{{- end }}

{{- /* What netplugin has of its node; the same when it is taken off. */ -}}
{{- define "contiv.nodeMounts" -}}
- name: state
  mountPath: /var/lib/contiv
- name: run
  mountPath: /run/contiv
- name: bpf
  mountPath: /sys/fs/bpf
  mountPropagation: Bidirectional
- name: netns
  mountPath: /run/netns
  mountPropagation: HostToContainer
- name: cgroup
  mountPath: /host/cgroup
  readOnly: true
{{- if include "contiv.openvswitch" . }}
- name: openvswitch
  mountPath: /run/openvswitch
{{- end }}
{{- end }}

{{- define "contiv.nodeVolumes" -}}
- name: state
  hostPath:
    path: /var/lib/contiv
    type: DirectoryOrCreate
- name: run
  hostPath:
    path: /run/contiv
    type: DirectoryOrCreate
# What eBPF has pinned survives the pod, so traffic goes on without it.
- name: bpf
  hostPath:
    path: /sys/fs/bpf
    type: Directory
# Pods' network namespaces, also those that are made later.
- name: netns
  hostPath:
    path: /run/netns
    type: DirectoryOrCreate
# cgroup2 is there, or mounted below: programs are attached to its root.
- name: cgroup
  hostPath:
    path: /sys/fs/cgroup
    type: Directory
{{- if include "contiv.openvswitch" . }}
- name: openvswitch
  hostPath:
    path: /run/openvswitch
    type: {{ if .Values.uninstall.enabled }}DirectoryOrCreate{{ else }}Directory{{ end }}
{{- end }}
- name: cni-bin
  hostPath:
    path: {{ .Values.netplugin.cniBinDir }}
    type: DirectoryOrCreate
- name: cni-conf
  hostPath:
    path: {{ .Values.netplugin.cniConfDir }}
    type: DirectoryOrCreate
{{- end }}

{{- define "contiv.cniMounts" -}}
- name: cni-bin
  mountPath: /host/cni-bin
- name: cni-conf
  mountPath: /host/cni-conf
{{- end }}

{{- /* One step of taking Contiv off a node. */ -}}
{{- define "contiv.uninstall" -}}
{{- include "contiv.image" . }}
command: [netplugin]
args:
  - --uninstall
  - --host=$(NODE_NAME)
  - --cni-bin-dir=/host/cni-bin
  - --cni-conf-dir=/host/cni-conf
  {{- if .Values.uninstall.force }}
  - --force
  {{- end }}
{{- end }}

{{- define "contiv.uninstallRest" -}}
env:
  - name: NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
securityContext:
  privileged: true
  readOnlyRootFilesystem: true
volumeMounts:
  {{- include "contiv.nodeMounts" . | nindent 2 }}
  {{- include "contiv.cniMounts" . | nindent 2 }}
{{- end }}
