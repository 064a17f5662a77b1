// Multus' CNI plugin, for tests: built from its module, since it is in no package of
// Debian's and no image is pulled.
module github.com/contiv/netplugin/v2/tools/multus

go 1.26

tool gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus

require gopkg.in/k8snetworkplumbingwg/multus-cni.v4 v4.2.2
