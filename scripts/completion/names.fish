# Names of this host for the completion in fish. Pools and datasets come from the kstats, so that no
# command of ZFS runs on a host in trouble.

function _zfstune_pools
  if test (uname) = FreeBSD
    # a dot in a name is %25 there
    sysctl -N kstat.zfs 2>/dev/null |
      sed -n 's/%25/./g; s/^kstat\.zfs\.\(.*\)\.misc\..*/\1/p' | sort -u
    return
  end
  for dir in /proc/spl/kstat/zfs/*/
    string split -r -m1 -f2 / (string trim -r -c / $dir)
  end
end

function _zfstune_datasets
  if test (uname) = FreeBSD
    sysctl kstat.zfs 2>/dev/null | sed -n 's/^kstat\.zfs\..*\.dataset_name: //p'
    return
  end
  for file in /proc/spl/kstat/zfs/*/objset-0x*
    sed -n 's/^dataset_name *7 *//p' $file 2>/dev/null
  end
end

function _zfstune_pools_datasets
  _zfstune_pools
  _zfstune_datasets
end

function _zfstune_datasets_dirs
  _zfstune_datasets
  __fish_complete_directories (commandline -ct)
end

# Parameters of the loaded module.
function _zfstune_parameters
  if test (uname) = FreeBSD
    sysctl -N vfs.zfs 2>/dev/null
    return
  end
  for file in /sys/module/zfs/parameters/*
    string split -r -m1 -f2 / $file
  end
end

# One of the words after the last comma of the word typed, without those that are there already.
function _zfstune_list
  set -l before (string match -r '^.*,' -- (commandline -ct))
  for word in $argv
    if not string match -q -e -- ",$word," ",$before"; and not string match -q -e -- ",$word=" ",$before"
      echo "$before$word"
    end
  end
end
