# Runs in the guest, in the host's file system: makes the RDMA devices, runs the command, ends the guest.
end() {
  echo "$1" >/run/control/status
  sync
  printf "\\x$(printf %02x "$1")" | dd of=/dev/port bs=1 seek=244 count=1 2>/dev/null
  sleep 5
  echo o >/proc/sysrq-trigger
}
word() { sed -n "s/.*\bguest\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }

# An MTU of 4500 leaves room for RDMA's largest, 4096.
make_one() {
  ip link add dummy0 type dummy
  ip link set dummy0 mtu 4500 up
  ip addr add 192.0.2.1/24 dev dummy0
  rdma link add rxe0 type rxe netdev dummy0
}

# cable N NETWORK: between vethN and vethN+1, with an RDMA device at either end. Both ends are addresses
# of this machine, which would be reached without the cable: the table of local addresses comes last for
# what is sent, and first for what arrives.
cable() {
  local first=$1 second=$(($1 + 1)) end
  ip link add "veth$first" mtu 4500 type veth peer name "veth$second" mtu 4500
  for end in "$first" "$second"; do
    echo 1 >"/proc/sys/net/ipv4/conf/veth$end/accept_local"
    echo 0 >"/proc/sys/net/ipv4/conf/veth$end/rp_filter"
    ip link set "veth$end" up
    ip addr add "$2.$((end - first + 1))/24" dev "veth$end"
    ip rule add pref 10 iif "veth$end" lookup local
  done
  ip route add "$2.2" dev "veth$first" src "$2.1" table 100
  ip route add "$2.1" dev "veth$second" src "$2.2" table 100
  rdma link add "rxe$first" type rxe netdev "veth$first"
  rdma link add "rxe$second" type rxe netdev "veth$second"
}
make_cables() {
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  ip rule add pref 20 lookup 100
  ip rule add pref 30 lookup local
  cable 0 192.0.2
  [ "$1" = 1 ] || cable 2 198.51.100
  ip rule del pref 0
}
make_wire() { make_cables 1; }
make_wires() { make_cables 2; }

ulimit -l unlimited
ip link set lo up
make_"$(word topology)"
if ! grep -qs ACTIVE /sys/class/infiniband/rxe0/ports/1/state; then
  echo "guest: rxe0 is not active"
  end 125
fi
timeout -k 5 "$(word seconds)" /bin/bash /run/control/command </dev/null >/dev/ttyS1 2>&1
status=$?
sleep 0.05
[ $status = 137 ] && status=124 # it ignored the end of its time
[ $status -gt 127 ] && status=127
end $status
