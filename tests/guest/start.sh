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

# Both ends are addresses of this machine, which would be reached without the cable: the table of local
# addresses comes last for what is sent, and first for what arrives.
make_wire() {
  ip link add veth0 mtu 4500 type veth peer name veth1 mtu 4500
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  for end in 0 1; do
    echo 1 >/proc/sys/net/ipv4/conf/veth$end/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/veth$end/rp_filter
    ip link set veth$end up
    ip addr add 192.0.2.$((end + 1))/24 dev veth$end
    ip rule add pref 1$end iif veth$end lookup local
  done
  ip route add 192.0.2.2 dev veth0 src 192.0.2.1 table 100
  ip route add 192.0.2.1 dev veth1 src 192.0.2.2 table 100
  ip rule add pref 20 lookup 100
  ip rule add pref 30 lookup local
  ip rule del pref 0
  rdma link add rxe0 type rxe netdev veth0
  rdma link add rxe1 type rxe netdev veth1
}

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
