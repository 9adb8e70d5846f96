# Names of this host for the completion in zsh. Pools and datasets come from the kstats, so that no
# command of ZFS runs on a host in trouble.

_zfstune_pools() {
  local -a found=(/proc/spl/kstat/zfs/*(N/:t))
  if [[ $OSTYPE == freebsd* ]]; then
    # a dot in a name is %25 there
    found+=(${(fu)"$(sysctl -N kstat.zfs 2>/dev/null |
      sed -n 's/%25/./g; s/^kstat\.zfs\.\(.*\)\.misc\..*/\1/p')"})
  fi
  compadd "$@" -a found
}

_zfstune_datasets() {
  local -a found files=(/proc/spl/kstat/zfs/*/objset-0x*(N))
  if [[ $OSTYPE == freebsd* ]]; then
    found=(${(f)"$(sysctl kstat.zfs 2>/dev/null |
      sed -n 's/^kstat\.zfs\..*\.dataset_name: //p')"})
  elif (( $#files )); then
    found=(${(f)"$(sed -n 's/^dataset_name *7 *//p' $files 2>/dev/null)"})
  fi
  compadd "$@" -a found
}

_zfstune_pools_datasets() {
  _zfstune_pools "$@"
  _zfstune_datasets "$@"
}

_zfstune_datasets_dirs() {
  _zfstune_datasets "$@"
  _files -/
}

# Parameters of the loaded module.
_zfstune_parameters() {
  local -a found=(/sys/module/zfs/parameters/*(N:t))
  [[ $OSTYPE != freebsd* ]] || found+=(${(f)"$(sysctl -N vfs.zfs 2>/dev/null)"})
  compadd "$@" -a found
}
